"""Records become columns or samples; what user code raises names the record."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import shardmix
from shardmix import FixedLenFeature, ParseError, Ragged, SkipRecord, VarLenFeature
from shardmix.format.columns import Column, allocate_arrays
from shardmix.format.encode import encode_example
from shardmix.format.features import resolve_schema
from shardmix.format.records import RecordBlock
from shardmix.order.hashing import SAMPLE, hash64
from shardmix.runtime.parse import Parsed, Parser, sample_seed
from tests.runtime.loading import unpack_batch


class Places:
    def path(self, shard: int) -> str:
        return f"shard-{shard}"

    def offset(self, shard: int, record: int) -> int:
        return 100 * record


def block_of(*payloads: bytes) -> RecordBlock:
    """Record i of shard 2 is payloads[i]."""
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    start = np.cumsum(lengths) - lengths
    count = np.arange(len(payloads))
    data = np.frombuffer(bytearray(b"".join(payloads)), np.uint8)
    return RecordBlock((data,), np.zeros_like(count), start, lengths, np.full_like(count, 2), count, Places())


def parser(**given: Any) -> Parser:
    return Parser(**{"schema": None, "parse": None, "parse_batch": None, "transform": None, "seed": 5, **given})


def batch_of(parsed: Parsed) -> Any:
    return unpack_batch(parsed.structure, parsed.columns)


def text(record: memoryview) -> str:
    return bytes(record).decode()


def skip_b(value: Any) -> Any:
    if bytes(value) == b"b":
        raise SkipRecord
    return bytes(value)


def fail_on_b(value: Any) -> Any:
    if bytes(value) == b"b":
        raise KeyError("b is not known")
    return bytes(value)


ABC = block_of(b"a", b"b", b"c")
SCHEMA = resolve_schema(
    {"id": FixedLenFeature((), "int64"), "tags": VarLenFeature("int64"), "name": FixedLenFeature((), "bytes")}
)
EXAMPLES = block_of(encode_example({"id": 1, "tags": [7, 8], "name": b"one"}), encode_example({"id": 2, "name": b"two"}))


def test_examples_become_columns() -> None:
    parsed = parser(schema=SCHEMA).parse_columns(EXAMPLES, 0)
    batch = batch_of(parsed)
    assert batch["id"].tolist() == [1, 2]
    assert batch["tags"].to_list() == [[7, 8], []]
    assert batch["name"] == [b"one", b"two"]
    assert parsed.kept.tolist() == [0, 1]


def test_memory_for_columns_is_asked_for_once() -> None:
    calls = []

    def allocate(requests: Any) -> Any:
        calls.append(requests)
        return allocate_arrays(requests)

    parser(schema=SCHEMA).parse_columns(EXAMPLES, 0, allocate)
    parser(parse=text).parse_columns(ABC, 0, allocate)
    parser(parse_batch=lambda records: {"size": np.ones(len(records)), "data": list(map(bytes, records))}).parse_columns(
        ABC, 0, allocate
    )
    assert len(calls) == 3


def test_a_transform_sees_values_that_it_owns() -> None:
    seen = []

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append({name: type(value) for name, value in sample.items()})
        sample["tags"] += 1
        return sample

    batch = batch_of(parser(schema=SCHEMA, transform=transform).parse_columns(EXAMPLES, 0))
    assert batch["tags"].to_list() == [[8, 9], []]
    assert isinstance(batch["tags"], Ragged)
    assert issubclass(seen[0]["tags"], np.ndarray)
    assert seen[0]["name"] is bytes


def test_parse_gives_a_sample_a_record() -> None:
    assert batch_of(parser(parse=text).parse_columns(ABC, 0)) == ["a", "b", "c"]


def test_a_transform_follows_parse() -> None:
    assert batch_of(parser(parse=text, transform=str.upper).parse_columns(ABC, 0)) == ["A", "B", "C"]


def test_a_parsed_record_may_be_changed_in_place() -> None:
    samples = dict(parser(parse=lambda record: np.frombuffer(record, np.uint8)).iter_samples(block_of(b"a", b"b", b"c"), 0))
    samples[1] += 1
    assert [bytes(sample) for sample in samples.values()] == [b"a", b"c", b"c"]


@pytest.mark.parametrize("given", [{"parse": skip_b}, {"parse": bytes, "transform": skip_b}])
def test_a_skipped_record_is_left_out(given: dict[str, Any]) -> None:
    parsed = parser(**given).parse_columns(ABC, 0)
    assert parsed.kept.tolist() == [0, 2]


def test_a_batch_of_skipped_records_has_no_rows() -> None:
    parsed = parser(parse=skip_b).parse_columns(block_of(b"b", b"b"), 0)
    assert parsed.kept.tolist() == []


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"parse": fail_on_b}, "fail_on_b"),
        ({"parse": bytes, "transform": fail_on_b}, "fail_on_b"),
        ({"parse_batch": lambda records: {"x": [fail_on_b(record) for record in records]}}, "<lambda>"),
    ],
)
def test_an_error_of_user_code_names_the_record(given: dict[str, Any], name: str) -> None:
    with pytest.raises(ParseError, match=rf"shard-2 record 1 at byte 100: .*{name} raised KeyError: 'b is not known'") as caught:
        parser(**given).parse_columns(ABC, 0)
    assert (caught.value.path, caught.value.record, caught.value.offset) == ("shard-2", 1, 100)
    assert isinstance(caught.value.__cause__, KeyError)
    assert pickle.loads(pickle.dumps(caught.value)).record == 1


def test_samples_before_an_error_are_given() -> None:
    samples = parser(parse=fail_on_b).iter_samples(ABC, 0)
    assert next(samples) == (0, b"a")
    with pytest.raises(ParseError):
        next(samples)


def test_a_payload_that_is_no_example_names_the_record() -> None:
    with pytest.raises(ParseError, match="shard-2 record 1 at byte 100"):
        parser(schema=SCHEMA).parse_columns(block_of(bytes(EXAMPLES.payload(0)), b"\xff\xff"), 0)


def test_an_error_that_needs_several_records_says_so() -> None:
    def parse_batch(records: list[memoryview]) -> dict[str, Any]:
        raise ValueError("too many") if len(records) > 1 else SkipRecord

    def only_together(records: list[memoryview]) -> dict[str, Any]:
        if len(records) > 1:
            raise ValueError("too many")
        return {}

    with pytest.raises(ParseError, match="ValueError: too many on 3 records, .*none of them alone"):
        parser(parse_batch=only_together).parse_columns(ABC, 0)


def test_parse_batch_cannot_skip() -> None:
    def parse_batch(records: list[memoryview]) -> dict[str, Any]:
        raise SkipRecord

    with pytest.raises(ParseError, match="write parse instead"):
        parser(parse_batch=parse_batch).parse_columns(ABC, 0)


BATCHES: dict[str, Any] = {
    "array": np.arange(6, dtype=np.float32).reshape(3, 2),
    "scalars": np.arange(3, dtype=np.int16),
    "tensor": torch.arange(3, dtype=torch.uint8),
    "bfloat16": torch.ones(3, 2, dtype=torch.bfloat16),
    "bytes": [b"a", b"", b"ccc"],
    "strings": ["a", "", "ccc"],
    "numbers": [1.5, 2.5, 3.5],
    "ragged": Ragged(torch.tensor([1, 2, 3]), torch.tensor([0, 2, 2, 3])),
    "nested": Ragged(Ragged(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 3])), torch.tensor([0, 2, 2, 2])),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_parse_batch_columns_arrive_as_they_are(kind: str) -> None:
    batch = batch_of(parser(parse_batch=lambda records: {kind: BATCHES[kind]}).parse_columns(ABC, 0))
    found, given = batch[kind], BATCHES[kind]
    if isinstance(given, Ragged):
        assert found.to_list() == given.to_list()
    elif isinstance(given, list):
        assert list(found) == given
    else:
        assert found.dtype == torch.as_tensor(given).dtype
        assert torch.equal(found, torch.as_tensor(given))


def test_parse_batch_may_reuse_its_arrays() -> None:
    scratch = np.zeros(3)

    def parse_batch(records: list[memoryview]) -> dict[str, Any]:
        scratch[:] = len(bytes(records[0]))
        return {"size": scratch}

    parse = parser(parse_batch=parse_batch)
    first = parse.parse_columns(ABC, 0)
    parse.parse_columns(block_of(b"aa", b"bb", b"cc"), 0)
    assert batch_of(first)["size"].tolist() == [1, 1, 1]


def test_parse_batch_rows_are_samples_of_a_plain_loader() -> None:
    given = {"size": np.arange(3), "data": [b"a", b"b", b"c"]}
    samples = dict(parser(parse_batch=lambda records: given).iter_samples(ABC, 0))
    assert [(int(sample["size"]), sample["data"]) for sample in samples.values()] == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_transform_takes_the_rows_of_parse_batch() -> None:
    parse = parser(parse_batch=lambda records: {"x": np.arange(3)}, transform=lambda sample: {"x": sample["x"] * 2})
    assert batch_of(parse.parse_columns(ABC, 0))["x"].tolist() == [0, 2, 4]


@pytest.mark.parametrize("transform", [None, lambda sample: sample])
def test_parse_batch_is_not_called_for_no_records(transform: Any) -> None:
    """As where a worker has no row of a small batch, or none that is sound."""
    parse = parser(parse_batch=lambda records: {"x": np.stack(records)}, transform=transform)
    assert len(parse.parse_columns(block_of(), 0).kept) == 0
    assert list(parse.iter_samples(block_of(), 0)) == []


def test_parse_batch_of_another_number_of_rows_names_both() -> None:
    with pytest.raises(ValueError, match="column 'x' has 2 rows, expected one for each of the 3 records"):
        parser(parse_batch=lambda records: {"x": np.arange(2)}).parse_columns(ABC, 0)


@pytest.mark.parametrize("given", [[1, 2, 3], None, np.arange(3)])
def test_parse_batch_returns_a_dict(given: Any) -> None:
    with pytest.raises(TypeError, match="expected a dict"):
        parser(parse_batch=lambda records: given).parse_columns(ABC, 0)


@pytest.mark.parametrize("name", ["parse", "transform"])
def test_each_record_has_a_seed(name: str) -> None:
    def seed(_: Any) -> int:
        return sample_seed() >> 1  # within int64

    given: dict[str, Callable[..., Any]] = {"parse": bytes, name: seed}
    seeds = [sample for _, sample in parser(**given).iter_samples(ABC, 3)]
    assert seeds == [hash64(SAMPLE, 5, 3, 2, record) >> 1 for record in range(3)]


def test_a_seed_needs_a_record() -> None:
    def ask(records: list[memoryview]) -> dict[str, Any]:
        return {"x": np.full(len(records), sample_seed())}

    with pytest.raises(RuntimeError, match="no record is at hand"):
        shardmix.sample_seed()
    with pytest.raises(ParseError, match="no record is at hand"):
        parser(parse_batch=ask).parse_columns(ABC, 0)
    samples = parser(parse=bytes).iter_samples(ABC, 0)
    next(samples)
    with pytest.raises(RuntimeError, match="no record is at hand"):
        sample_seed()


def test_columns_do_not_look_at_the_read_buffers() -> None:
    data = bytearray(b"".join(bytes(EXAMPLES.payload(row)) for row in range(2)))
    buffer = np.frombuffer(data, np.uint8)
    fields = (EXAMPLES.buffer, EXAMPLES.start, EXAMPLES.length, EXAMPLES.shard, EXAMPLES.record)
    columns: list[Column] = parser(schema=SCHEMA).parse_columns(RecordBlock((buffer,), *fields, Places()), 0).columns
    before = [column.values.copy() for column in columns]
    data[:] = bytes(len(data))
    assert all(np.array_equal(column.values, values) for column, values in zip(columns, before, strict=True))
