"""A restart is a seek: what is read after it is what is left of the epoch, and at first no more than the buffer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardmix import MixLoader, ShardDataset
from shardmix.runtime import reads

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:an epoch inflates")]

COUNTS = [700, 0, 1900, 1400]  # 4000 records
BUFFER = 640


class Sizes(ShardDataset):
    """A sample is the size of its record; counts what is parsed."""

    num_parsed = 0

    def parse(self, record: memoryview) -> int:
        Sizes.num_parsed += 1
        return len(record)


@pytest.fixture
def read_log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(records, bytes) of each read of the record reader."""
    log: list[tuple[int, int]] = []
    read = reads.RecordReader.read

    def note(self: Any, *arguments: Any) -> Any:
        result = read(self, *arguments)
        log.append((len(result.record), len(result.buffer)))
        return result

    monkeypatch.setattr(reads.RecordReader, "read", note)
    monkeypatch.setattr(Sizes, "num_parsed", 0)
    return log


def halfway(loader: MixLoader) -> dict[str, Any]:
    return {**loader.state_dict(), "rows": 2000 // 16 * 16}


def totals(log: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(records for records, _ in log), sum(size for _, size in log)


@pytest.mark.parametrize("compression_type", [None, "gzip"])
def test_a_resume_at_half_an_epoch_reads_the_buffer_and_no_more(
    make_corpus: Callable[..., str], read_log: list[tuple[int, int]], compression_type: str | None
) -> None:
    pattern = make_corpus(COUNTS, compression_type=compression_type)
    fresh = MixLoader(Sizes(pattern, shuffle_buffer_size=BUFFER), 16)
    iterator = iter(fresh)
    next(iterator)
    fresh_records, fresh_bytes = totals(read_log)
    iterator.close()
    read_log.clear()
    Sizes.num_parsed = 0
    resumed = MixLoader(Sizes(pattern, shuffle_buffer_size=BUFFER), 16)
    resumed.load_state_dict(halfway(resumed))
    next(iter(resumed))
    records, size = totals(read_log)
    assert records <= fresh_records + BUFFER + 64  # some batches may be read ahead
    assert size * fresh_records <= 2 * fresh_bytes * records  # records are alike
    assert Sizes.num_parsed <= 16 + 64


@pytest.mark.parametrize("compression_type", [None, "gzip"])
def test_after_a_resume_only_what_is_left_is_read_and_once(
    make_corpus: Callable[..., str], read_log: list[tuple[int, int]], compression_type: str | None
) -> None:
    loader = MixLoader(Sizes(make_corpus(COUNTS, compression_type=compression_type), shuffle_buffer_size=BUFFER), 16)
    state = halfway(loader)
    loader.load_state_dict(state)
    list(loader)
    assert totals(read_log)[0] == Sizes.num_parsed == 4000 - state["rows"]


def test_a_plain_loader_seeks_too(make_corpus: Callable[..., str], read_log: list[tuple[int, int]]) -> None:
    dataset = Sizes(make_corpus(COUNTS), shuffle_buffer_size=BUFFER)
    dataset.load_state_dict({**dataset.state_dict(), "rows": 3000})
    assert len(list(dataset)) == 1000
    assert totals(read_log)[0] == Sizes.num_parsed == 1000
