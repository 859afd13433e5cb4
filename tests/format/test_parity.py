"""Law 3 for decoding: the C twin gives the same columns as the Python twin, or the same error type, text, place and feature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix.errors import ParseError
from shardmix.format import example
from shardmix.format.columns import Column, allocate_arrays
from shardmix.format.features import FixedLenFeature, Schema, VarLenFeature, resolve_schema
from shardmix.format.reader import read_records
from shardmix.format.records import RecordBlock
from shardmix.format.targets import DenseLayout, RowTargets
from tests.format import wire
from tests.format.odd_payloads import ODD, PAYLOADS, SCHEMA, SCHEMAS, SEQUENCE_SCHEMA, STRICT_SCHEMA, USUAL

pytest.importorskip("shardmix.format._core", reason="the C extension was not built")
from shardmix.format import native_examples

pytestmark = pytest.mark.once

SEEDS = sorted(Path(__file__).parents[2].glob("fuzz/corpus/examples/*"))


class Places:
    """Records of one file, 100 bytes apart."""

    def path(self, shard: int) -> str:
        return "some.tfrecord"

    def offset(self, shard: int, record: int) -> int:
        return record * 100


def make_block(payloads: Sequence[bytes]) -> RecordBlock:
    """A block of payloads in two buffers, in turn: each ends where its last payload does."""
    halves = [b"".join(payloads[::2]), b"".join(payloads[1::2])]
    rows = np.arange(len(payloads), dtype=np.int64)
    length = np.array([len(payload) for payload in payloads], np.int64)
    start = np.zeros_like(rows)
    for half in (0, 1):
        start[half::2] = np.cumsum(length[half::2]) - length[half::2]
    buffers = tuple(np.frombuffer(half, np.uint8) for half in halves)
    return RecordBlock(buffers, rows % 2, start, length, np.zeros_like(rows), rows, Places())


def split_input(data: bytes) -> list[bytes]:
    """The payloads in an input of fuzz/fuzz_examples.c: a byte of flags, then each behind its length, two bytes little-endian."""
    payloads, place = [], 1
    while place + 2 <= len(data):
        length = int.from_bytes(data[place : place + 2], "little")
        payloads.append(data[place + 2 : place + 2 + length])
        place += 2 + length
    return payloads


def outcome(decode: Any, payloads: Sequence[bytes], schema: Schema) -> Any:
    """What a twin makes of some payloads, comparable: columns to the bit, or all that an error says."""
    try:
        columns: list[Column] = decode(make_block(payloads), schema)
    except ParseError as error:
        return type(error), str(error), error.path, error.record, error.offset, error.feature
    return [
        (c.spec, c.values.dtype, c.values.shape, c.values.tobytes(), [(n.dtype, n.tolist()) for n in c.lengths]) for c in columns
    ]


def to_targets(decode: Any, block: RecordBlock, schema: Schema, room: int = 3) -> list[Column]:
    """What a twin makes of a block, its dense columns by way of targets: every other row of two buffers, the last row first."""
    rows = len(block)
    layout = DenseLayout([field.spec for field in schema.fields], room * rows)
    buffers = tuple(np.full(layout.num_bytes, 0xAA, np.uint8) for _ in range(2))
    targets = RowTargets(buffers, np.arange(rows) % 2, 2 * np.arange(rows)[::-1] % max(layout.num_rows, 1), layout)
    others = iter(decode(block, schema, allocate_arrays, targets))
    columns = []
    for number, spec in enumerate(layout.specs):
        if spec.levels:
            columns.append(next(others))
            continue
        written: Any = [layout.arrays(buffer, layout.num_rows)[number] for buffer in buffers]
        values = np.empty((rows, *spec.item_shape), spec.dtype)
        for row in range(rows):
            values[row] = written[targets.buffer[row]][targets.position[row]]
        columns.append(Column(spec, values, ()))
    return columns


def check(payloads: Sequence[bytes], schema: Schema) -> None:
    """Both twins agree, wherever dense rows go."""
    expected = outcome(example.decode_examples, payloads, schema)
    assert outcome(native_examples.decode_examples, payloads, schema) == expected
    for twin in (example.decode_examples, native_examples.decode_examples):
        assert outcome(partial(to_targets, twin), payloads, schema) == expected


def check_alone_and_among_others(payload: bytes, schema: Schema, usual: bytes) -> None:
    """Both twins agree, also where the records before make the C twin expect something else."""
    check([payload], schema)
    check([usual, payload, usual, payload], schema)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_odd_payloads(payload: bytes, schema: Schema) -> None:
    check_alone_and_among_others(payload, schema, USUAL["full"])


@pytest.mark.parametrize(
    ("name", "schema"), [("full", SCHEMA), ("negative", SCHEMA), ("strict", STRICT_SCHEMA), ("sequence", SEQUENCE_SCHEMA)]
)
class TestDamagedPayloads:
    def test_cut_at_every_byte(self, name: str, schema: Schema) -> None:
        for stop in range(len(USUAL[name])):
            check([USUAL[name], USUAL[name][:stop]], schema)

    def test_every_bit_flipped(self, name: str, schema: Schema) -> None:
        for place in range(len(USUAL[name])):
            for bit in range(8):
                damaged = bytearray(USUAL[name])
                damaged[place] ^= 1 << bit
                check([USUAL[name], bytes(damaged)], schema)


class TestGeneratedPayloads:
    schema = resolve_schema(
        {
            "a": VarLenFeature("int64"),
            "b": FixedLenFeature((), "bytes", default_value="-"),
            "label": FixedLenFeature((1,), "int64", default_value=0),
            "ключ": VarLenFeature("bytes"),
            "": VarLenFeature("float32"),
        }
    )

    @given(drawn=st.lists(wire.odd_examples(), min_size=1, max_size=4))
    def test_of_many_forms(self, drawn: list[tuple[dict[str, Any], bytes]]) -> None:
        check([payload for _, payload in drawn], self.schema)
        check([drawn[0][1]], self.schema)

    @given(payloads=st.lists(st.sampled_from(sorted(PAYLOADS.values())), max_size=6))
    def test_in_any_company(self, payloads: list[bytes]) -> None:
        for schema in SCHEMAS.values():
            check(payloads, schema)

    @settings(max_examples=300)
    @given(data=st.data())
    def test_with_bytes_changed_inserted_and_removed(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(["full", "sequence", "strict"]))
        payload = bytearray(USUAL[name])
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(payload) - 1))
            payload[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        for schema in SCHEMAS.values():
            check_alone_and_among_others(bytes(payload), schema, USUAL[name])

    @given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**21)))
    def test_of_any_numbers(self, values: list[int]) -> None:
        check([wire.plain_example(ints=("int64", values)), wire.plain_example(ints=("int64", values[::-1]))], SCHEMA)


class TestWideSchemas:
    """More features than the keys that are remembered (MAX_GUESSES), and more defaults than anyone declares by hand."""

    @pytest.mark.parametrize("is_missing", [False, True])
    def test_ten_thousand_features(self, is_missing: bool) -> None:
        names = [f"feature {number}" for number in range(10_000)]
        payload = wire.plain_example(**{name: ("int64", [number]) for number, name in enumerate(names)})
        payloads = [payload, wire.plain_example(other=("int64", [1])), payload] if is_missing else [payload] * 2
        check(payloads, resolve_schema(dict.fromkeys(names, VarLenFeature("int64"))))

    def test_three_hundred_defaults(self) -> None:
        features = {f"feature {number}": FixedLenFeature((), "int64", default_value=number) for number in range(300)}
        payloads = [
            wire.plain_example(**{name: ("int64", [-1]) for number, name in enumerate(features) if number % divisor == 0})
            for divisor in (1, 2, 3, 299, 301)
        ]
        check(payloads, resolve_schema(features))


@pytest.mark.skipif(not SEEDS, reason="the fuzzer's corpus is not in the sdist")
def test_the_corpus_of_the_fuzzer() -> None:
    for path in SEEDS:
        payloads = split_input(path.read_bytes())
        for schema in SCHEMAS.values():
            check(payloads, schema)


class TestFilesOfOthers:
    @pytest.mark.parametrize("name", ["examples.tfrecord", "sequences.tfrecord", "uneven-00002-of-00005", "raw.tfrecord"])
    def test_golden(self, golden_dir: Path, name: str) -> None:
        payloads = [bytes(record) for record in read_records(golden_dir / name)]
        for schema in (*SCHEMAS.values(), self.golden_schema(), self.golden_sequence_schema()):
            check(payloads, schema)

    def golden_schema(self) -> Schema:
        return resolve_schema(
            {
                "id": FixedLenFeature((), "int64"),
                "name": FixedLenFeature((), "bytes"),
                "rare": FixedLenFeature((), "int64", default_value=-1),
                "score": FixedLenFeature((), "float32"),
                "tags": VarLenFeature("bytes"),
                "tokens": VarLenFeature("int64"),
                "unset": VarLenFeature("float32"),
                "vec": FixedLenFeature((4,), "float32"),
                "ключ": FixedLenFeature((), "bytes", default_value=b""),
            }
        )

    def golden_sequence_schema(self) -> Schema:
        return resolve_schema(
            {"id": FixedLenFeature((), "int64"), "len": FixedLenFeature((), "int64")},
            {
                "frames": FixedLenFeature((3,), "float32"),
                "labels": FixedLenFeature((), "int64"),
                "words": VarLenFeature("bytes"),
            },
        )

    def test_golden_needs_no_help(self, golden_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(example, "decode_examples", None)
        payloads = [bytes(record) for record in read_records(golden_dir / "examples.tfrecord")][:60]  # two more have no names
        columns = native_examples.decode_examples(make_block(payloads), self.golden_schema())
        assert columns[0].values.tolist() == list(range(60))
        payloads = [bytes(record) for record in read_records(golden_dir / "sequences.tfrecord")]
        columns = native_examples.decode_examples(make_block(payloads), self.golden_sequence_schema())
        assert columns[0].values.tolist() == list(range(20))

    def test_real_files(self, realdata_dir: Path, manifest: Any) -> None:
        for entry in manifest:
            payloads = [bytes(record) for record in read_records(realdata_dir / entry["file"])]
            schemas = [SCHEMA, SEQUENCE_SCHEMA]
            if entry["parsed_digest"]:
                schemas.append(self.infer(payloads))
            for schema in schemas:
                check(payloads, schema)

    def infer(self, payloads: list[bytes]) -> Schema:
        """All features of a file, as VarLenFeature where their number varies."""
        return resolve_schema(None, None, map(memoryview, payloads))


@pytest.mark.parametrize("name", sorted(USUAL))
def test_the_usual_needs_no_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What most corpora hold is decoded in C alone: else the speed is not what is promised."""
    monkeypatch.setattr(example, "decode_examples", None)
    schema = {"strict": STRICT_SCHEMA, "sequence": SEQUENCE_SCHEMA, "lists_only": SEQUENCE_SCHEMA}.get(name, SCHEMA)
    native_examples.decode_examples(make_block([USUAL[name]] * 3), schema)


def test_another_order_needs_no_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers of maps give no order: each record may have another."""
    monkeypatch.setattr(example, "decode_examples", None)
    native_examples.decode_examples(make_block([USUAL["full"], ODD["another_order"], USUAL["full"]]), SCHEMA)


def test_memory_is_asked_for_once_and_may_be_unaligned() -> None:
    asked: list[Any] = []

    def allocate(requests: Any) -> list[Any]:
        asked.append([(shape, np.dtype(dtype)) for shape, dtype in requests])
        sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in requests]
        memory = [np.zeros(size + 1, np.uint8)[1:] for size in sizes]
        return [m.view(dtype).reshape(shape) for m, (shape, dtype) in zip(memory, requests, strict=True)]

    payloads = [USUAL["full"], ODD["unpacked"], USUAL["negative"]]
    for twin in (example.decode_examples, native_examples.decode_examples):
        columns = twin(make_block(payloads), SCHEMA, allocate)
        assert columns[2].lengths[0].tolist() == [13, 3, 27]
        assert columns[2].values[:15].tolist()[12:] == [2**63 - 1, 1, -1]
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_keys_beyond_those_that_are_remembered_are_found_by_their_names() -> None:
    """More than 1,024 features, two of which change places in one record."""
    numbers = list(range(1100))
    moved = numbers[:]
    moved[1023], moved[1099] = moved[1099], moved[1023]

    def record(order: list[int], left_out: int | None = None) -> bytes:
        kept = [number for number in order if number != left_out]
        return wire.example(*(wire.entry(f"f{i:04d}", wire.feature("int64", wire.packed("int64", [i % 100]))) for i in kept))

    features = {name: FixedLenFeature((), "int64", default_value=-1) for name in ("f1099", "f1023", "f1024", "f0000")}
    payloads = [record(numbers), record(numbers), record(moved), record(numbers, 1023), record(moved, 1023), record(numbers)]
    check(payloads, resolve_schema(features))
