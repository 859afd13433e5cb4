"""ShardDataset by itself: what it is given, how long it is, what an epoch holds, sets, damage."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data

import shardmix
from shardmix import (
    CorruptShardError,
    FixedLenFeature,
    ParseError,
    ShardDataset,
    ShardWriter,
    SkipRecord,
    StaleIndexError,
    infer_features,
)
from shardmix.format.columns import allocate_arrays
from shardmix.format.framing import frame_record
from shardmix.order.schedule import Schedule
from shardmix.runtime.dataset import RowSource
from tests.runtime.loading import unpack_batch

UNEVEN = [7, 0, 101, 40, 23]  # the counts of the golden uneven-* shards; feature id is shard * 1000 + record
IDS = [shard * 1000 + record for shard, count in enumerate(UNEVEN) for record in range(count)]
FEATURES = {"id": FixedLenFeature((), "int64")}

MakeCorpus = Callable[..., str]


@pytest.fixture
def open_uneven(golden_dir: Path, tmp_path: Path) -> Callable[..., ShardDataset]:
    """The golden uneven shards, 171 records."""

    def build(**settings: Any) -> ShardDataset:
        given = {"features": FEATURES, "index": "cache", "cache_dir": tmp_path / "index", **settings}
        return ShardDataset(str(golden_dir / "uneven-*"), **given)

    return build


def ids(samples: Any) -> list[int]:
    return [int(sample["id"]) for sample in samples]


class LineDataset(ShardDataset):
    """Payloads are JSON."""

    def parse(self, record: memoryview) -> Any:
        return json.loads(bytes(record))


class SizeDataset(ShardDataset):
    def parse_batch(self, records: list[memoryview]) -> dict[str, Any]:
        return {"size": np.array(list(map(len, records)))}


def write_lines(path: Path, lines: list[Any]) -> str:
    path.write_bytes(b"".join(frame_record(json.dumps(line).encode()) for line in lines))
    return str(path)


# --- What an epoch holds


def test_an_epoch_holds_every_record_once(open_uneven: Callable[..., ShardDataset]) -> None:
    found = ids(open_uneven())
    assert sorted(found) == IDS
    assert found != IDS


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_share_an_epoch(open_uneven: Callable[..., ShardDataset], world_size: int) -> None:
    ranks = [open_uneven(rank=rank, world_size=world_size) for rank in range(world_size)]
    found = [ids(rank) for rank in ranks]
    assert sorted(sum(found, [])) == IDS
    assert [len(rank) for rank in ranks] == list(map(len, found))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_the_rows_are_those_of_the_model(open_uneven: Callable[..., ShardDataset], order_model: Any) -> None:
    dataset = open_uneven(seed=3, lanes=4, cycle_length=2, block_length=2, shuffle_buffer_size=64)
    rows = order_model.epoch_rows(UNEVEN, 4, 2, 2, buffer=64, seed=3, epoch=0)
    assert ids(dataset) == [shard * 1000 + record for shard, record in rows]


def test_passes_are_epochs_and_set_epoch_goes_back(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset = open_uneven()
    first, second = ids(dataset), ids(dataset)
    assert first != second
    dataset.set_epoch(0)
    assert [ids(dataset), ids(dataset)] == [first, second]


def test_without_shuffle_one_lane_of_one_track_is_in_file_order(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset = open_uneven(shuffle=False, lanes=1, cycle_length=1)
    assert [ids(dataset), ids(dataset)] == [IDS, IDS]


def test_two_passes_at_a_time_are_whole(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset = open_uneven()
    pairs = list(zip(dataset, dataset, strict=True))
    assert sorted(int(a["id"]) for a, _ in pairs) == sorted(int(b["id"]) for _, b in pairs) == IDS


def test_a_pass_that_ended_stays_ended_and_files_are_closed(make_corpus: MakeCorpus) -> None:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    dataset = ShardDataset(make_corpus([3, 2]))
    samples = iter(dataset)
    assert len(list(samples)) == 5
    assert list(samples) == []
    unfinished = iter(dataset)
    next(unfinished)
    del unfinished, samples, dataset
    assert not before or len(os.listdir("/proc/self/fd")) <= len(before)


def test_fewer_records_than_lanes_come_all(make_corpus: MakeCorpus) -> None:
    assert sorted(ids(ShardDataset(make_corpus([1, 0, 2])))) == [0, 2000, 2001]


@pytest.mark.parametrize("compression_type", [None, "gzip", "zlib"])
def test_compressed_shards_give_the_same_records(make_corpus: MakeCorpus, compression_type: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # two shards are few for 16 lanes
        found = ids(ShardDataset(make_corpus([30, 40], compression_type=compression_type)))
    assert sorted(found) == [*range(30), *range(1000, 1040)]


def test_few_compressed_shards_warn_with_the_figure_and_the_remedy(
    make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmix.runtime.dataset.INFLATION_BYTES", 0)
    dataset = ShardDataset(make_corpus([300], compression_type="gzip"))
    with pytest.warns(UserWarning, match=r"inflates \d+\.\d times the bytes .* 16 lanes .* rewrite them as more shards"):
        len(dataset)


def test_few_small_compressed_shards_are_not_worth_a_warning(make_corpus: MakeCorpus) -> None:
    assert len(ShardDataset(make_corpus([300], compression_type="gzip"))) == 300


def test_features_are_inferred(make_corpus: MakeCorpus) -> None:
    (sample, *_) = ShardDataset(make_corpus([3, 2]))
    assert list(sample) == ["id"]
    assert sample["id"].dtype == np.int64


def test_features_are_inferred_from_the_sample_that_infer_features_takes(tmp_path: Path) -> None:
    """Of one large shard 256 records, evenly: the last of them is record 298."""
    with ShardWriter(tmp_path / "{}.tfrecord", num_shards=1) as writer:
        for record in range(300):
            writer.write({"id": record} | {298: {"late": 1.0}, 299: {"unseen": 1.0}}.get(record, {}))
    features = infer_features(tmp_path).features
    assert list(features) == ["id", "late"]
    assert list(next(iter(ShardDataset(tmp_path)))) == ["id", "late"]


def test_a_damaged_sample_is_left_out_of_inference_where_asked(damaged: tuple[str, Path]) -> None:
    with pytest.raises(CorruptShardError, match="record 5"):
        len(ShardDataset(damaged[0]))
    assert len(ids(ShardDataset(damaged[0], on_corrupt="skip"))) == 39


def test_sample_values_are_the_users(open_uneven: Callable[..., ShardDataset]) -> None:
    samples = list(open_uneven(features={"id": FixedLenFeature((1,), "int64")}))
    for sample in samples:
        sample["id"] += 10_000
    assert sorted(int(sample["id"][0]) for sample in samples) == [number + 10_000 for number in IDS]


# --- User code


def test_a_subclass_parses_its_own_records(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.tfrecord", [[1], {"x": 2}, "three"])
    assert sorted(map(str, LineDataset(path))) == ["[1]", "three", "{'x': 2}"]


def test_a_subclass_parses_batches(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.tfrecord", ["", "a", "bb"])
    assert sorted(int(sample["size"]) for sample in SizeDataset(path)) == [2, 3, 4]


def test_a_transform_is_called_with_each_sample(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset = open_uneven(transform=lambda sample: int(sample["id"]) * 2)
    assert sorted(dataset) == [number * 2 for number in IDS]


def test_skipped_records_shift_nothing(open_uneven: Callable[..., ShardDataset]) -> None:
    def skip_odd(sample: Any) -> Any:
        if sample["id"] % 2:
            raise SkipRecord
        return sample

    assert ids(open_uneven(transform=skip_odd)) == [number for number in ids(open_uneven()) if number % 2 == 0]


def test_an_error_in_parse_names_the_record_and_the_data_set_can_be_used_again(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame_record(b'"sound"') + frame_record(b"{"))
    dataset = LineDataset(str(path), shuffle=False, lanes=1, cycle_length=1)
    for _ in range(2):
        samples = iter(dataset)
        assert next(samples) == "sound"
        with pytest.raises(ParseError, match=r"record 1 at byte 23: LineDataset\.parse raised JSONDecodeError") as caught:
            next(samples)
        assert isinstance(caught.value.__cause__, json.JSONDecodeError)


def test_a_sample_seed_belongs_to_the_record_and_the_epoch(open_uneven: Callable[..., ShardDataset]) -> None:
    def draw(sample: Any) -> tuple[int, int]:
        return int(sample["id"]), shardmix.sample_seed()

    first, other_lanes = open_uneven(transform=draw), open_uneven(transform=draw, lanes=4)
    seeds = dict(first)
    assert len(set(seeds.values())) == 171
    assert dict(other_lanes) == seeds
    assert not set(dict(first).values()) & set(seeds.values())


def test_with_source_tells_where_a_sample_came_from(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset = open_uneven(with_source=True)
    for sample in dataset:
        source = sample["source"]
        assert source.shard * 1000 + source.record == sample["id"]
        assert (source.epoch, source.worker, source.is_pad, source.is_fill) == (0, 0, False, False)
    assert {sample["source"].lane for sample in dataset} == set(range(16))


def test_with_source_pairs_other_samples(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.tfrecord", ["one", "two"])
    assert sorted((sample, source.record) for sample, source in LineDataset(path, with_source=True)) == [("one", 0), ("two", 1)]


# --- take and split


def test_take_is_the_beginning_of_each_epoch(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset, taken = open_uneven(), open_uneven().take(50)
    assert len(taken) == 50
    for _ in range(2):
        assert ids(taken) == ids(dataset)[:50]


def test_take_counts_over_all_ranks(open_uneven: Callable[..., ShardDataset]) -> None:
    lengths = [len(open_uneven(rank=rank, world_size=3).take(50)) for rank in range(3)]
    assert lengths == [17, 17, 16]


def test_take_of_more_is_everything_and_takes_nest(open_uneven: Callable[..., ShardDataset]) -> None:
    assert len(open_uneven().take(1000)) == 171
    assert len(open_uneven().take(10).take(100)) == 10


def test_sets_are_disjoint_and_together_everything(open_uneven: Callable[..., ShardDataset]) -> None:
    sets = open_uneven().split({"valid": 0.25, "train": 0.75})
    assert list(sets) == ["valid", "train"]
    train, valid = ids(sets["train"]), ids(sets["valid"])
    assert sorted(train + valid) == IDS
    assert abs(len(valid) - 171 * 0.25) <= 5
    assert (len(sets["train"]), len(sets["valid"])) == (len(train), len(valid))


def test_a_set_of_a_set_is_a_part_of_it(open_uneven: Callable[..., ShardDataset]) -> None:
    train = open_uneven().split({"train": 0.75, "valid": 0.25})["train"]
    halves = train.split({"a": 0.5, "b": 0.5}, seed=1)
    assert sorted(ids(halves["a"]) + ids(halves["b"])) == sorted(ids(train))


def test_a_split_does_not_depend_on_the_order(open_uneven: Callable[..., ShardDataset]) -> None:
    fractions = {"train": 0.75, "valid": 0.25}
    one, other = open_uneven().split(fractions), open_uneven(seed=9, lanes=4, shuffle=False).split(fractions)
    assert sorted(ids(one["valid"])) == sorted(ids(other["valid"]))


def test_an_empty_set_is_refused(make_corpus: MakeCorpus) -> None:
    with pytest.raises(ValueError, match="'valid' would have no record of 3"):
        ShardDataset(make_corpus([3])).split({"train": 0.999, "valid": 0.001})


def test_a_take_is_not_split(open_uneven: Callable[..., ShardDataset]) -> None:
    with pytest.raises(ValueError, match="split first, then take"):
        open_uneven().take(10).split({"a": 0.5, "b": 0.5})


# --- Damage


@pytest.fixture
def damaged(make_corpus: MakeCorpus) -> tuple[str, Path]:
    """Two shards of 20 records, indexed; then a payload bit of record 5 of shard 1 flips, and nothing else shows."""
    pattern = make_corpus([20, 20])
    index = ShardDataset(pattern)._index
    path = Path(index.path(1))
    status, data = path.stat(), bytearray(path.read_bytes())
    data[index.offset(1, 5) + 14] ^= 4
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return pattern, path


def test_a_corrupt_record_raises_in_its_turn(damaged: tuple[str, Path]) -> None:
    dataset = ShardDataset(damaged[0], features=FEATURES, shuffle=False, lanes=1, cycle_length=1)
    found = []
    with pytest.raises(CorruptShardError, match="record 5 at byte .* payload CRC mismatch"):
        for sample in dataset:
            found.append(int(sample["id"]))
    assert found == [*range(20), *range(1000, 1005)]


def test_a_corrupt_record_is_skipped_where_asked_and_logged(damaged: tuple[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    dataset = ShardDataset(damaged[0], features=FEATURES, on_corrupt="skip")
    with caplog.at_level(logging.WARNING, "shardmix"):
        found = ids(dataset)
    assert sorted(found) == [number for number in [*range(20), *range(1000, 1020)] if number != 1005]
    assert [record.message.count("record 5") for record in caplog.records] == [1]


def test_too_much_damage_raises(damaged: tuple[str, Path]) -> None:
    dataset = ShardDataset(damaged[0], features=FEATURES, on_corrupt="skip", max_corrupt=0)
    with pytest.raises(CorruptShardError) as caught:
        list(dataset)
    assert "max_corrupt=0" in caught.value.__notes__[0]


def test_a_shard_that_changed_is_refused_until_opened_again(make_corpus: MakeCorpus) -> None:
    pattern = make_corpus([3, 2])
    dataset = ShardDataset(pattern, features=FEATURES)
    path = Path(dataset._index.path(1))
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(StaleIndexError):
        list(dataset)
    assert sorted(ids(ShardDataset(pattern, features=FEATURES))) == [0, 1, 2, 1000, 1000, 1001, 1001]


# --- RowSource, which MixLoader's workers use


def read_batches(dataset: ShardDataset, batch_size: int) -> Iterator[tuple[Any, list[int], tuple[CorruptShardError, ...]]]:
    opened = dataset._open(1)
    schedule = Schedule(opened.plan.num_records, opened.plan.lanes, batch_size)
    source = RowSource(dataset, opened)
    for step in range(schedule.num_batches(0)):
        filled = source.fill(0, schedule.batch_rows(0, 0, step, 1), allocate_arrays)
        assert filled.shard.tolist() == [
            number // 1000 for number in unpack_batch(filled.structure, filled.columns)["id"].tolist()
        ]
        yield unpack_batch(filled.structure, filled.columns), filled.kept.tolist(), filled.damages
    assert source.num_open == 0
    source.close()


def test_a_row_source_gives_the_epochs_rows(open_uneven: Callable[..., ShardDataset]) -> None:
    batches = list(read_batches(open_uneven(), 32))
    assert [number for batch, _, _ in batches for number in batch["id"].tolist()] == ids(open_uneven())
    assert [len(kept) for _, kept, _ in batches] == [32, 32, 32, 32, 32, 11]


def test_a_row_source_leaves_holes(damaged: tuple[str, Path]) -> None:
    dataset = ShardDataset(damaged[0], features=FEATURES, on_corrupt="skip", lanes=2, shuffle_buffer_size=8)
    batches = list(read_batches(dataset, 8))
    assert sorted(len(kept) for _, kept, _ in batches) == [7, 8, 8, 8, 8]
    assert [damage.record for _, _, damages in batches for damage in damages] == [5]


def test_a_row_source_raises_and_goes_on(damaged: tuple[str, Path]) -> None:
    dataset = ShardDataset(damaged[0], features=FEATURES, lanes=2, shuffle_buffer_size=8)
    opened = dataset._open(1)
    schedule = Schedule(40, 2, 8)
    source = RowSource(dataset, opened)
    outcomes = []
    for step in range(5):
        try:
            source.fill(0, schedule.batch_rows(0, 0, step, 1), allocate_arrays)
            outcomes.append("batch")
        except CorruptShardError as error:
            outcomes.append(str(error.record))
    assert sorted(outcomes) == ["5", "batch", "batch", "batch", "batch"]
    source.close()


# --- What it is given


def test_no_record_is_an_error_at_construction(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    with pytest.raises(ValueError, match="no records in 1 shards"):
        ShardDataset(str(tmp_path / "*.tfrecord"))


def test_no_shard_is_an_error_at_construction(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ShardDataset(str(tmp_path / "*.tfrecord"))


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"shuffle": 1}, TypeError, "shuffle is 1, expected True or False"),
    ({"seed": 1.5}, TypeError, "seed is 1.5"),
    ({"seed": -1}, ValueError, "seed is -1"),
    ({"seed": True}, TypeError, "seed is True"),
    ({"cycle_length": 0}, ValueError, "cycle_length is 0"),
    ({"block_length": 0}, ValueError, "block_length is 0"),
    ({"lanes": 0}, ValueError, "lanes is 0"),
    ({"shuffle_buffer_size": -1}, ValueError, "shuffle_buffer_size is -1"),
    ({"shuffle_buffer_size": 8}, ValueError, "less than one record for each of the 16 lanes"),
    ({"shuffle_buffer_size": 8, "lanes": 9}, ValueError, "each of the 9 lanes"),
    ({"shuffle_buffer_size": 20, "rank": 0, "world_size": 3}, ValueError, "each of the 24 lanes"),
    ({"verify": "yes"}, ValueError, "'full', 'length', 'off'"),
    ({"on_corrupt": "ignore"}, ValueError, "'raise', 'skip'"),
    ({"on_hole": "pad"}, ValueError, "'shrink', 'fill'"),
    ({"max_corrupt": 3}, ValueError, "on_corrupt='skip'"),
    ({"transform": "resize"}, TypeError, "expected a function"),
    ({"with_source": None}, TypeError, "with_source is None"),
    ({"cache_bytes": -1}, ValueError, "cache_bytes is -1"),
    ({"compression_type": "lzma"}, ValueError, "lzma"),
    ({"rank": 0}, ValueError, "rank=0, world_size=None"),
    ({"rank": 3, "world_size": 3}, ValueError, "rank=3, world_size=3"),
    ({"lanes": 16, "rank": 0, "world_size": 3}, ValueError, "nearest that they can is lanes=15"),
    ({"lanes": 2, "rank": 0, "world_size": 3}, ValueError, "nearest that they can is lanes=3"),
    ({"features": ["id"], "sequence_features": {"id": None}}, ValueError, "id"),
    ({"features": 3}, TypeError, "features"),
]


@pytest.mark.parametrize(("settings", "error", "text"), BAD)
def test_a_wrong_argument_is_named(make_corpus: MakeCorpus, settings: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        len(ShardDataset(make_corpus([3]), **settings))


def test_lanes_that_ranks_cannot_share_are_refused_when_the_ranks_are_known(
    make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = ShardDataset(make_corpus([3]), lanes=16)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="lanes is 16, which 3 ranks cannot share"):
        len(dataset)


def test_ranks_are_found_when_a_pass_begins(open_uneven: Callable[..., ShardDataset], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_uneven()
    assert len(dataset) == 171
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(dataset) == 85
    assert ids(dataset) == ids(open_uneven(rank=1, world_size=2))


@pytest.mark.parametrize(("world_size", "lanes"), [(1, 16), (2, 16), (3, 24), (4, 32), (5, 40)])
def test_lanes_follow_from_the_ranks(open_uneven: Callable[..., ShardDataset], world_size: int, lanes: int) -> None:
    assert open_uneven()._open(world_size).plan.lanes == lanes


def test_features_beside_a_parser_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.tfrecord", ["one"])
    with pytest.raises(ValueError, match="LineDataset: features are given"):
        LineDataset(path, features=FEATURES)


def test_two_parsers_are_refused(tmp_path: Path) -> None:
    class Both(LineDataset, SizeDataset):
        pass

    with pytest.raises(TypeError, match="both parse and parse_batch"):
        Both(write_lines(tmp_path / "a.tfrecord", ["one"]))


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", None])
def test_an_epoch_is_a_number(open_uneven: Callable[..., ShardDataset], epoch: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="epoch is"):
        open_uneven().set_epoch(epoch)


def test_numpy_integers_are_integers(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset = open_uneven(seed=np.int64(3), lanes=np.int32(4))
    assert (type(dataset.seed), type(dataset.lanes)) == (int, int)
    assert ids(dataset) == ids(open_uneven(seed=3, lanes=4))


def test_it_tells_what_it_is(open_uneven: Callable[..., ShardDataset]) -> None:
    dataset = open_uneven(lanes=8)
    assert repr(dataset) == "ShardDataset(5 shards, 171 records, shuffle_buffer_size=16384, seed=0, lanes=8, cycle_length=4)"
    train = dataset.split({"train": 0.5, "valid": 0.5})["train"].take(10)
    assert "set 'train', take(10)" in repr(train)


def test_it_tells_which_shards_are_cut_off(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{}.tfrecord", num_shards=2) as writer:
        for number in range(6):
            writer.write({"id": number})
    os.truncate(writer.paths[1], os.path.getsize(writer.paths[1]) - 1)
    dataset = ShardDataset(str(tmp_path), on_corrupt="skip", index="memory")
    assert repr(dataset).startswith("ShardDataset(2 shards (1 cut off), 5 records, ")


def test_it_is_an_iterable_dataset_of_torch(open_uneven: Callable[..., ShardDataset]) -> None:
    assert isinstance(open_uneven(), torch.utils.data.IterableDataset)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_gives_the_same_records(open_uneven: Callable[..., ShardDataset], duplicate: Callable[[Any], Any]) -> None:
    dataset = open_uneven()
    dataset.set_epoch(4)
    twin = duplicate(dataset)
    found = ids(twin)
    dataset.set_epoch(4)
    assert found == ids(dataset)
