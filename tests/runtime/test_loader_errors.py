"""What goes wrong under MixLoader: errors with their type, place and the worker's traceback; holes; and the loader goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from shardmix import CorruptShardError, MixLoader, ParseError, ShardDataset, ShardMixError, SkipRecord
from tests.runtime.loading import (
    FEATURES,
    IDS,
    Counting,
    FailingDataset,
    Forgetful,
    NothingDataset,
    OddError,
    ParsedDataset,
    SkippingDataset,
    Squares,
    StackingDataset,
    id_in,
    ids_of,
    write_corpus,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

WORKERS = [(0, {}), (2, {}), (2, {"persistent_workers": True})]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("errors") / "corpus")


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """A corpus of which record 5 of shard 2 has a flipped bit."""
    pattern = write_corpus(tmp_path / "damaged")
    path = next((tmp_path / "damaged").glob("00002*.tfrecord"))
    data = bytearray(path.read_bytes())
    data[data.index(b"record 2005")] ^= 1
    path.write_bytes(data)
    return pattern


def texts_of_causes(error: BaseException) -> list[str]:
    causes = []
    while error.__cause__ is not None:
        error = error.__cause__
        causes.append(str(error))
    return causes


# --- An exception of the user's code


@pytest.mark.parametrize(("num_workers", "settings"), WORKERS)
def test_an_error_of_a_parser_keeps_type_place_and_traceback(pattern: str, num_workers: int, settings: Any) -> None:
    loader = MixLoader(FailingDataset(pattern, shuffle_buffer_size=32), batch_size=8, num_workers=num_workers, **settings)
    for _ in range(2):  # the loader can be used again
        loader.set_epoch(0)
        with pytest.raises(ParseError, match=r"parse raised OddError: .*is odd") as caught:
            list(loader)
        error = caught.value
        assert (Path(str(error.path)).name[:5], error.record) == ("00002", 5)
        assert isinstance(error.offset, int)
        assert isinstance(error.__cause__, OddError)
        assert error.__cause__.number == 2005
        if num_workers:
            assert "in worker" in texts_of_causes(error)[-1]
            assert 'raise OddError(number, "is odd")' in texts_of_causes(error)[-1]
    del loader


def test_batches_before_the_error_arrive_alike_with_any_workers(pattern: str) -> None:
    def received(num_workers: int) -> list[list[int]]:
        batches: list[list[int]] = []
        loader = MixLoader(FailingDataset(pattern, shuffle_buffer_size=32), batch_size=2, num_workers=num_workers)
        with pytest.raises(ParseError):
            batches.extend(batch["id"].tolist() for batch in loader)
        return batches

    whole = [batch["id"].tolist() for batch in MixLoader(ParsedDataset(pattern, shuffle_buffer_size=32), batch_size=2)]
    for num_workers in (0, 3):
        before = received(num_workers)
        assert before == whole[: len(before)]
        assert len(before) <= next(j for j, batch in enumerate(whole) if 2005 in batch)


@pytest.mark.parametrize(("num_workers", "settings"), WORKERS)
def test_an_error_of_a_transform_reaches_the_user(pattern: str, num_workers: int, settings: Any) -> None:
    dataset = ShardDataset(pattern, features=FEATURES, transform=refuse)
    with pytest.raises(ParseError, match="refuse raised KeyError: 'missing'") as caught:
        next(iter(MixLoader(dataset, batch_size=8, num_workers=num_workers, **settings)))
    assert isinstance(caught.value.__cause__, KeyError)


def refuse(sample: Any) -> Any:
    return sample["missing"]


@pytest.mark.parametrize(("num_workers", "settings"), WORKERS)
@pytest.mark.parametrize("make", [lambda fails_at: Squares(20, fails_at), lambda fails_at: Counting(20, fails_at)])
def test_an_error_of_another_dataset_reaches_the_user_as_itself(
    make: Callable[[int | None], Any], num_workers: int, settings: Any
) -> None:
    dataset = make(7)
    loader = MixLoader(dataset, batch_size=4, num_workers=num_workers, **settings)
    with pytest.raises(OddError) as caught:
        list(loader)
    assert caught.value.args[0] == caught.value.number == 7
    if isinstance(dataset, Squares):
        assert caught.value.__notes__ == ["shardmix: raised by Squares[7]"]
    assert num_workers == 0 or "in worker 1" in texts_of_causes(caught.value)[-1]
    with pytest.raises(OddError):
        list(loader)
    del loader


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_of_collate_fn_or_schedule_reaches_the_user(pattern: str, num_workers: int) -> None:
    dataset = ShardDataset(pattern, features=FEATURES)
    with pytest.raises(KeyError, match="missing"):
        next(iter(MixLoader(dataset, batch_size=8, num_workers=num_workers, collate_fn=lambda samples: samples[0]["missing"])))
    with pytest.raises(ValueError, match="step 0 names 99"):
        next(iter(MixLoader(dataset, batch_size=1, num_workers=num_workers, schedule=lambda step, remaining: [99])))
    with pytest.raises(ValueError, match="step 0 names 2 rows, expected batch_size, 1"):
        next(iter(MixLoader(dataset, batch_size=1, num_workers=num_workers, schedule=lambda step, remaining: [0, 0])))


def test_a_lambda_under_spawn_gives_a_hint(pattern: str) -> None:
    dataset = ShardDataset(pattern, features=FEATURES, transform=lambda sample: sample)
    loader = MixLoader(dataset, batch_size=8, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(Exception, match="lambda") as caught, pytest.warns(UserWarning, match="pickle error"):
        next(iter(loader))
    hints = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any("top" in hint and "module" in hint for hint in hints)


def test_an_error_of_worker_init_fn_is_told(pattern: str) -> None:
    def fail(worker: int) -> None:
        raise OddError(worker, "cannot begin")

    loader = MixLoader(ShardDataset(pattern, features=FEATURES), batch_size=8, num_workers=1, worker_init_fn=fail)
    with pytest.raises(OddError, match="cannot begin"):
        next(iter(loader))


@pytest.mark.parametrize(("num_workers", "options"), WORKERS)
def test_items_that_are_left_out_are_named(num_workers: int, options: dict[str, Any]) -> None:
    loader = MixLoader(Forgetful(), batch_size=4, num_workers=num_workers, **options)
    with pytest.raises(ValueError, match=r"Forgetful\.__getitems__: got 3 items for 4 indices"):
        list(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_which_a_worker_has_no_row(pattern: str, num_workers: int) -> None:
    loader = MixLoader(StackingDataset(pattern), batch_size=1, num_workers=num_workers)
    assert sorted(ids_of(loader)) == IDS


class Sleeping(Squares):
    """Item 3 takes far too long."""

    def __getitem__(self, i: int) -> Any:
        if i == 3:
            torch.multiprocessing.Event().wait(60)
        return super().__getitem__(i)


def test_a_timeout_names_the_worker_and_its_work() -> None:
    loader = MixLoader(Sleeping(8), batch_size=2, num_workers=2, timeout=1)
    with pytest.raises(RuntimeError, match=r"worker 1 .*timeout=1 s, loading 2 items, \[2, 3\]"):
        list(loader)


# --- Damage


@pytest.mark.parametrize("num_workers", [0, 2])
def test_damage_is_an_error_that_names_the_place(damaged: str, num_workers: int) -> None:
    loader = MixLoader(ShardDataset(damaged, features=FEATURES), batch_size=8, num_workers=num_workers)
    with pytest.raises(CorruptShardError, match=r"00002.*.tfrecord record 5 at byte \d+: .*CRC") as caught:
        list(loader)
    assert caught.value.record == 5


@pytest.mark.parametrize("num_workers", [0, 2])
def test_skipped_damage_is_a_hole_that_is_counted_and_logged(
    damaged: str, num_workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = ShardDataset(damaged, features=FEATURES, on_corrupt="skip")
    loader = MixLoader(dataset, batch_size=10, num_workers=num_workers)
    sizes = [len(batch["id"]) for batch in loader]
    assert sorted(sizes) == [1, 9, 10, 10, 10, 10, 10, 10]
    loader.set_epoch(0)
    assert sorted(ids_of(loader)) == sorted(set(IDS) - {2005})
    assert (loader.stats()["damages"], loader.stats()["holes"]) == (2, 2)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "skipped: " in caplog.messages[0]
    assert "record 5 at byte" in caplog.messages[0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_more_damage_than_allowed_is_an_error(damaged: str, num_workers: int) -> None:
    dataset = ShardDataset(damaged, features=FEATURES, on_corrupt="skip", max_corrupt=0)
    with pytest.raises(CorruptShardError, match="record 5"):
        list(MixLoader(dataset, batch_size=10, num_workers=num_workers))


# --- Holes


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_a_skipped_record_shrinks_its_batch_and_shifts_nothing(pattern: str, num_workers: int) -> None:
    whole = [batch["id"].tolist() for batch in MixLoader(ParsedDataset(pattern, shuffle_buffer_size=32), batch_size=12)]
    loader = MixLoader(SkippingDataset(pattern, shuffle_buffer_size=32), batch_size=12, num_workers=num_workers)
    assert [batch["id"].tolist() for batch in loader] == [[n for n in batch if n % 2 == 0] for batch in whole]
    assert loader.stats()["holes"] == sum(n % 2 for n in IDS)


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("collate_fn", [None, list])
def test_fill_repeats_a_row_of_the_batch_in_the_place_of_a_hole(pattern: str, num_workers: int, collate_fn: Any) -> None:
    shrunk = SkippingDataset(pattern, shuffle_buffer_size=32)
    dataset = SkippingDataset(pattern, shuffle_buffer_size=32, on_hole="fill", with_source=True)
    loader = MixLoader(dataset, batch_size=12, num_workers=num_workers, collate_fn=collate_fn)
    for batch, expected in zip(loader, MixLoader(shrunk, batch_size=12), strict=True):
        if collate_fn is None:
            numbers, source = batch["id"].tolist(), batch["source"]
        else:
            numbers, source = [sample["id"] for sample in batch[0]], batch[1]
        is_fill = source.is_fill.tolist()
        assert [n for n, fill in zip(numbers, is_fill, strict=True) if not fill] == expected["id"].tolist()
        assert set(numbers) == set(expected["id"].tolist())
        assert torch.equal(source.shard * 1000 + source.record, torch.tensor(numbers))
    assert [len(batch["id"]) for batch in MixLoader(shrunk, batch_size=12)] != [12] * 5 + [11]


def test_filled_batches_have_static_shapes(pattern: str) -> None:
    dataset = SkippingDataset(pattern, shuffle_buffer_size=32, on_hole="fill")
    assert [len(batch["id"]) for batch in MixLoader(dataset, batch_size=12, num_workers=2)] == [12] * 5 + [11]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("on_hole", ["shrink", "fill"])
def test_a_batch_of_holes_only_is_an_error_that_names_the_step(pattern: str, num_workers: int, on_hole: str) -> None:
    loader = MixLoader(NothingDataset(pattern, on_hole=on_hole), batch_size=12, num_workers=num_workers)
    with pytest.raises(ShardMixError, match="epoch 0 step 0: all 12 records of the batch were skipped"):
        list(loader)


class OnlyFirst(ShardDataset):
    """Keeps one record."""

    def parse(self, record: memoryview) -> Any:
        number = id_in(record)
        if number >= 20:
            raise SkipRecord
        return {"id": number}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_filling_repeats_the_batch_before_one_of_holes_only(pattern: str, num_workers: int) -> None:
    dataset = OnlyFirst(pattern, shuffle=False, lanes=1, cycle_length=1, on_hole="fill")
    batches = [batch["id"].tolist() for batch in MixLoader(dataset, batch_size=7, num_workers=min(num_workers, 1))]
    assert batches == [[0, 1, 2, 3, 4, 5, 6]] * 10 + [[0]]


def test_torchs_loader_gives_the_same_samples(pattern: str) -> None:
    """What the tests above compare with is itself right."""
    torchs: Iterator[Any] = iter(DataLoader(ParsedDataset(pattern), batch_size=12))
    assert sorted(ids_of(torchs)) == IDS


def test_shuffle_is_said_to_the_data_set(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"shuffle=True: a ShardDataset shuffles by itself"):
        MixLoader(ParsedDataset(pattern), batch_size=4, shuffle=True)
