"""ShardDataset: TFRecord shards as an IterableDataset in a known order.

Rule 1: what is wrong with the arguments, and what is known without a look at payloads, is said at construction.
Rule 2: the order of an epoch depends on (shards, seed, epoch, lanes, buffer, cycle, block), never on num_workers; the ranks have
    equal shares of the lanes.
Rule 3: it pickles. Workers get index, schema and ranks from the main process; files each of them opens for itself.

rows.py is what MixLoader's workers use, stream.py what a plain DataLoader does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import get_spawning_popen
from os import PathLike
from typing import Any, Self

import torch.utils.data
from torch.utils.data import get_worker_info

from ..format.corpus import ShardsLike
from ..format.features import Schema, needs_samples, resolve_schema
from ..format.index import open_index
from ..format.infer import sample_records
from ..format.records import IntArray
from ..order.lanes import choose_lanes
from ..order.plan import Plan
from ..order.split import Split
from .damages import DamageLog
from .epochs import SharedEpoch
from .parse import Parser
from .ranks import World, resolve_world
from .reads import Share
from .rows import Filled, Opened, RowSource
from .settings import SEED_LIMIT, check_picklable, check_settings, integer
from .stream import Host, StreamProgress, iterate_samples, order_of_stream

__all__ = ["Filled", "Opened", "RowSource", "ShardDataset"]

INFLATION_LIMIT = 1.5
# … and so many compressed bytes again, about a second's work: less is not worth a user's attention.
INFLATION_BYTES = 64 << 20


class ShardDataset(torch.utils.data.IterableDataset[Any]):
    """The records of a TFRecord corpus, each once an epoch, shuffled over all shards.

        dataset = ShardDataset("corpus/train-*.tfrecord", features={"label": FixedLenFeature((), "int64")})
        loader = MixLoader(dataset, batch_size=256, num_workers=4)      # or a plain DataLoader

    For records of another format subclass it, and write one of

        def parse(self, record: memoryview) -> sample
        def parse_batch(self, records: list[memoryview]) -> {name: column of as many rows}

    shards: a path, glob, brace range `{00000..00127}`, directory, `name@128`, a list of those, fsspec URLs. Sorted.
    features, sequence_features: name → FixedLenFeature, VarLenFeature, RawFeature or a dict form of the tfrecord package; None is
        inferred from the first records of several shards. Only what is asked for is decoded.
    transform: called in the worker with each sample; an Example is a dict of numpy values that it owns, and bytes. Under the
        start methods spawn and forkserver it must pickle: a function of a module, not a lambda.
    shuffle, seed, shuffle_buffer_size, cycle_length, block_length, lanes: the order. shuffle_buffer_size is in records, the job's
        total; 0 is no buffer. lanes=None: the smallest multiple of world_size that is at least max(16, 8 · world_size).
    compression_type: "auto" (told from the content), "none", "gzip", "zlib".
    verify: "full" (both CRCs of every record), "length", "off". on_corrupt: "raise", or "skip", which leaves a hole; at most
        max_corrupt of them, None is any number. on_hole: "shrink" or "fill", for MixLoader.
    index, cache_dir: where the index is kept; see build_index. cache_bytes: bytes of free read buffers that each worker keeps for
        reuse, None is 32 MiB.
    rank, world_size: None finds them: torch.distributed, then the environment, else one rank.
    with_source: adds where each sample came from: `source` in a dict, else (sample, source).

    Raises TypeError and ValueError for wrong arguments or no record at all, FileNotFoundError for no shards, CorruptShardError
    for a shard whose frames are damaged (unless on_corrupt="skip": then its sound beginning counts), OSError.
    """

    def __init__(
        self,
        shards: ShardsLike,
        *,
        features: Mapping[str, Any] | Sequence[str] | None = None,
        sequence_features: Mapping[str, Any] | Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        shuffle_buffer_size: int = 16384,
        cycle_length: int = 4,
        block_length: int = 1,
        lanes: int | None = None,
        compression_type: str | None = "auto",
        verify: str = "full",
        on_corrupt: str = "raise",
        max_corrupt: int | None = None,
        on_hole: str = "shrink",
        index: str | PathLike[str] = "auto",
        cache_dir: str | PathLike[str] | None = None,
        cache_bytes: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        with_source: bool = False,
    ) -> None:
        super().__init__()
        self.features, self.sequence_features, self.transform = features, sequence_features, transform
        self.shuffle, self.seed, self.shuffle_buffer_size = shuffle, seed, shuffle_buffer_size
        self.cycle_length, self.block_length, self.lanes = cycle_length, block_length, lanes
        self.verify, self.cache_bytes, self.with_source = verify, cache_bytes, with_source
        self.on_corrupt, self.max_corrupt, self.on_hole = on_corrupt, max_corrupt, on_hole
        self.rank, self.world_size = rank, world_size
        vars(self).update(check_settings(vars(self)))
        self.num_taken: int | None = None  # rows of an epoch, after take(); None is all
        self.shares: tuple[Share, ...] = ()  # the set that this is, after split()
        self._schema = self._declare_schema()
        self._index = open_index(
            shards,
            compression_type=compression_type,
            on_corrupt=on_corrupt,
            index=index,
            cache_dir=cache_dir,
        )
        self._counts: IntArray = self._index.counts
        if not self._counts.any():
            raise ValueError(f"{self._index.corpus.parent}: no records in {len(self._counts)} shards, expected at least one")
        self._epochs, self._stream, self._damage_log = SharedEpoch(), StreamProgress(), DamageLog()
        self._opened: dict[int, Opened] = {}
        self._told_world: World | None = None  # in a worker that was not forked: what the main process found

    def parse(self, record: memoryview) -> Any:
        """One sample from one payload; for subclasses. Raise SkipRecord to drop the record.

        The memory of the payload is the sample's to keep. Samples of one structure, dtype and shape travel packed, others
        pickled.
        """
        raise NotImplementedError(
            "parse: for subclasses; without it the payloads are Examples, and `features` says what to decode"
        )

    def parse_batch(self, records: list[memoryview]) -> dict[str, Any]:
        """Columns from some payloads: name → as many rows as records, an array, a tensor, a list or a Ragged; for subclasses.

        How many records come together, at least one, depends on the batch size and on the number of workers; a row must not
        depend on it.
        """
        raise NotImplementedError(
            "parse_batch: for subclasses; without it the payloads are Examples, and `features` says what to decode"
        )

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass, for workers that are running already too. Without it each pass is the next epoch.

        Raises TypeError, ValueError for what is no epoch.
        """
        self._epochs.set(integer(0, SEED_LIMIT)("epoch", epoch))
        self._stream.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass that began last in this process stands, for a plain DataLoader; as plain numbers and texts.

            loader = torchdata.stateful_dataloader.StatefulDataLoader(dataset, 256, num_workers=4)   # asks in every worker

        MixLoader has a state of its own.
        """
        return self._stream.state(self._epochs.next_epoch, order_of_stream(self, *self._find_host()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state in the next pass; the passes after it are the epochs after it.

        Raises StateMismatchError, with both sides, when it is of another order, or of another worker.
        """
        opened, host = self._find_host()
        self._stream.load(state, order_of_stream(self, opened, host), host)

    def take(self, num_records: int) -> Self:
        """The first rows of each epoch's order, over all ranks: another data set, with all the laws.

            dataset.take(1000)      # a thousand records, others in each epoch

        Raises TypeError, ValueError for less than one record.
        """
        number = integer(1)("take: num_records", num_records)
        taken = self._derive()
        taken.num_taken = number if self.num_taken is None else min(number, self.num_taken)
        return taken

    def split(self, fractions: Mapping[str, float], *, seed: int = 0) -> dict[str, Self]:
        """Disjoint sets of the records, together all of them; each a data set with all the laws.

            sets = dataset.split({"train": 0.9, "valid": 0.1})

        Decided record by record, evenly over every shard, by arithmetic: of (seed, shard, record), whatever the order of the
        epoch.

        Raises ValueError when the fractions are not above 0 or do not add up to 1, a set would be empty, or after take().
        """
        if self.num_taken is not None:
            raise ValueError("split: the data set is a take(), whose records differ from epoch to epoch; split first, then take")
        division = Split(fractions, integer(0, SEED_LIMIT)("split: seed", seed))
        sets = {}
        for name, counts in division.counts(self._counts).items():
            if not counts.any():
                raise ValueError(f"split: {name!r} would have no record of {int(self._counts.sum())}; give it a larger fraction")
            sets[name] = self._derive()
            sets[name]._counts = counts
            sets[name].shares = (*self.shares, Share(division, name))
        return {name: sets[name] for name in fractions}

    def __len__(self) -> int:
        """The records of this rank in an epoch."""
        world = self._find_world()
        return len(range(world.rank, self._open(world.world_size).num_rows, world.world_size))

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        opened, host = self._find_host()
        # torch seeds worker w with base seed + w; workers of one DataLoader share the base seed
        place = self._stream.begin(host, self._epochs, info.seed - info.id if info else None)
        return iterate_samples(self, opened, host, place)

    def __repr__(self) -> str:
        count = int(self._counts.sum())
        of_sets = "".join(f", set {share.name!r}" for share in self.shares)
        taken = "" if self.num_taken is None else f", take({self.num_taken})"
        order = f"shuffle_buffer_size={self.shuffle_buffer_size}, seed={self.seed}" if self.shuffle else "shuffle=False"
        lanes = "" if self.lanes is None else f", lanes={self.lanes}"
        cut_off = f" ({len(self._index.damages)} cut off)" if self._index.damages else ""
        corpus = f"{len(self._counts)} shards{cut_off}, {count} records{of_sets}{taken}"
        return f"{type(self).__name__}({corpus}, {order}{lanes}, cycle_length={self.cycle_length})"

    def _find_host(self) -> tuple[Opened, Host]:
        """What is open, and whose lanes a pass that begins here is over."""
        info = get_worker_info()
        world = self._find_world()
        return self._open(world.world_size), Host(world, info.id if info else 0, info.num_workers if info else 0)

    def _open(self, world_size: int, lanes: int | None = None) -> Opened:
        """What all ranks share: index, schema and plan; cached. `lanes` stands in for lanes=None (a state's)."""
        number = choose_lanes(self.lanes or lanes, world_size)
        opened = self._opened.get(number)
        if opened is None:
            plan = Plan(
                self._counts,
                number,
                self.cycle_length,
                self.block_length,
                self.shuffle_buffer_size,
                self.seed,
                self.shuffle,
                self._index.compressed,
            )
            _warn_of_inflation(plan, int(self._index.sizes[self._index.compressed].sum()))
            num_rows = plan.num_records if self.num_taken is None else min(self.num_taken, plan.num_records)
            opened = self._opened[number] = Opened(self._index, self._find_schema(), plan, num_rows, self.shares)
        return opened

    def _find_schema(self) -> Schema | None:
        """The schema, inferred where it is not declared; None where a subclass parses."""
        if self._schema is None and not self._parses_itself():
            samples = sample_records(self._index, verify=self.verify, on_corrupt=self.on_corrupt)
            self._schema = resolve_schema(self.features, self.sequence_features, samples)
        return self._schema

    def _declare_schema(self) -> Schema | None:
        """The schema where it can be known without a look at the records; contradictions are told here."""
        if not self._parses_itself():
            if needs_samples(self.features, self.sequence_features):
                return None
            return resolve_schema(self.features, self.sequence_features)
        name = type(self).__name__
        if self._overrides("parse") and self._overrides("parse_batch"):
            raise TypeError(
                f"{name}: overrides both parse and parse_batch, and records can be parsed only once; keep one of them"
            )
        if self.features is not None or self.sequence_features is not None:
            raise ValueError(
                f"{name}: features are given, and the class has a parser of its own, which would ignore them; drop one"
            )
        return None

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(ShardDataset, method)

    @property
    def runs_user_code(self) -> bool:
        """Whether a parser or transform of the user's is called."""
        return self._parses_itself() or self.transform is not None

    def _parses_itself(self) -> bool:
        return self._overrides("parse") or self._overrides("parse_batch")

    def _make_parser(self, opened: Opened) -> Parser:
        return Parser(
            schema=opened.schema,
            parse=self.parse if self._overrides("parse") else None,
            parse_batch=self.parse_batch if self._overrides("parse_batch") else None,
            transform=self.transform,
            seed=self.seed,
        )

    def _find_world(self) -> World:
        """The ranks, asked anew; in a worker that was not forked, as the main process found them."""
        if self._told_world is not None and get_worker_info() is not None:
            return self._told_world
        return resolve_world(self.rank, self.world_size)

    def _derive(self) -> Self:
        """The same records, another pass counter."""
        derived = type(self).__new__(type(self))
        vars(derived).update(vars(self))
        derived._epochs, derived._stream, derived._opened = SharedEpoch(), StreamProgress(), {}
        return derived

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if get_spawning_popen() is not None:  # on the way to a worker
            check_picklable("transform", self.transform)
            state["_told_world"] = world = self._find_world()
            self._open(world.world_size)
        return state


def _warn_of_inflation(plan: Plan, compressed_bytes: int) -> None:
    """Say when tracks begin inside compressed shards so often that an epoch inflates far more than the corpus."""
    factor = plan.inflation()
    is_much = factor > INFLATION_LIMIT and (factor - 1) * compressed_bytes > INFLATION_BYTES
    info = get_worker_info()
    if is_much and (info is None or info.id == 0):
        warnings.warn(
            f"an epoch inflates {factor:.1f} times the bytes of the compressed shards: {plan.lanes} lanes of "
            f"{plan.effective_cycle_length} tracks begin inside {int((plan.counts > 0).sum())} shards, which can only be "
            "read from their start; rewrite them as more shards, or as plain ones, or use fewer lanes or a smaller cycle_length",
            UserWarning,
            stacklevel=4,
        )
