"""The C extension at its seams: every CPU path of the CRC, spans, wrong calls, memory that changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import crc32c as crc32c_package
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmix import encode_example
from shardmix.format import framing, spans
from shardmix.format.columns import allocate_arrays
from shardmix.format.features import FixedLenFeature, resolve_schema
from shardmix.format.framing import Damage, frame_record
from tests.format.odd_payloads import SCHEMA, USUAL
from tests.format.test_parity import make_block

_core = pytest.importorskip("shardmix.format._core", reason="the C extension was not built")
from shardmix.format import native, native_examples  # noqa: E402

pytestmark = pytest.mark.once

DATA = np.random.default_rng(0).integers(0, 256, 8200, np.uint8)
SOUND = b"".join(frame_record(bytes(size)) for size in (0, 3, 100, 700))


def as_array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("portable", [False, True], ids=[_core.crc32c_method, "table"])
class TestCrc32c:
    def test_published_vectors(self, portable: bool) -> None:
        """RFC 3720, appendix B.4."""
        vectors = [
            (bytes(32), 0x8A9136AA),
            (b"\xff" * 32, 0x62A8AB43),
            (bytes(range(32)), 0x46DD794E),
            (bytes(range(31, -1, -1)), 0x113FDB5C),
            (b"123456789", 0xE3069283),
            (b"", 0),
        ]
        assert [_core.crc32c(data, 0, portable) for data, _ in vectors] == [crc for _, crc in vectors]

    def test_every_length(self, portable: bool) -> None:
        data = DATA.tobytes()
        for length in range(1101):
            assert _core.crc32c(memoryview(data)[:length], 7, portable) == crc32c_package.crc32c(data[:length], 7)

    def test_every_alignment(self, portable: bool) -> None:
        for start in range(17):
            for length in (0, 1, 7, 8, 63, 127, 128, 129, 784, 3079, 3080, 3081, 8183):
                data = DATA[start : start + length]
                assert _core.crc32c(data, 0, portable) == crc32c_package.crc32c(data.tobytes())

    def test_goes_on_from_any_cut(self, portable: bool) -> None:
        whole = crc32c_package.crc32c(DATA.tobytes())
        for cut in range(0, len(DATA), 97):
            assert _core.crc32c(DATA[cut:], _core.crc32c(DATA[:cut], 0, portable), portable) == whole


class TestFrames:
    """What both twins share is in test_framing.py; here is what random buffers say."""

    @pytest.mark.parametrize("verify", ["full", "length", "off"])
    def test_every_flipped_bit_and_cut(self, verify: str) -> None:
        for place in range(len(SOUND)):
            damaged = bytearray(SOUND)
            damaged[place] ^= 1 << place % 8
            self.check(bytes(damaged), len(SOUND), verify)
            self.check(SOUND[:place], place, verify)
            self.check(SOUND[:place], len(SOUND), verify)

    @example(b"\0" * 7 + b"\x80" + b"\0" * 4, "off", 2**63 + 4)
    @given(st.binary(max_size=80), st.sampled_from(["full", "length", "off"]), st.integers(0, 2**64))
    def test_any_bytes(self, data: bytes, verify: str, beyond: int) -> None:
        self.check(data, len(data) + beyond, verify)

    def check(self, data: bytes, remaining: int, verify: str) -> None:
        expected = framing.scan_frames(as_array(data), remaining=remaining, verify=verify)
        scan = native.scan_frames(as_array(data), remaining=remaining, verify=verify)
        assert (scan.lengths.tolist(), scan.consumed, scan.damage) == (expected.lengths.tolist(), *expected[1:])
        start, length = np.array([12, 28, 47, 12, 2**62]), np.array([0, 3, 100, 2**62, 0])
        known = framing.check_frames(as_array(data), start, length, verify=verify)
        assert native.check_frames(as_array(data), start, length, verify=verify).tolist() == known.tolist()

    def test_damage_is_of_the_same_type(self) -> None:
        assert isinstance(native.scan_frames(as_array(SOUND), remaining=len(SOUND)).damage, Damage)

    @pytest.mark.parametrize(
        "call",
        [
            lambda twin: twin.scan_frames(as_array(SOUND), remaining=5),
            lambda twin: twin.scan_frames(as_array(SOUND), remaining=len(SOUND), verify="some"),
            lambda twin: twin.check_frames(as_array(SOUND), np.array([11]), np.array([0])),
            lambda twin: twin.check_frames(as_array(SOUND), np.array([12]), np.array([-1])),
            lambda twin: twin.check_frames(as_array(SOUND), np.array([12]), np.array([0, 3])),
        ],
    )
    def test_wrong_calls_say_the_same(self, call: Callable[[Any], Any]) -> None:
        with pytest.raises(ValueError) as expected:
            call(framing)
        with pytest.raises(ValueError) as got:
            call(native)
        assert str(got.value) == str(expected.value)


class TestCopySpans:
    @given(
        lengths=st.lists(st.integers(0, 40), max_size=12),
        dtype=st.sampled_from(["uint8", "int16", "float32", "int64", "complex128"]),
        width=st.sampled_from([(), (3,), (2, 2)]),
        seed=st.integers(0, 99),
    )
    def test_equals_the_python_twin(self, lengths: list[int], dtype: str, width: tuple[int, ...], seed: int) -> None:
        rng = np.random.default_rng(seed)
        source = rng.integers(0, 100, (sum(lengths) + 5, *width)).astype(dtype)
        length = np.array(lengths, np.int64)
        order = rng.permutation(len(lengths))
        out_start = np.empty_like(length)
        out_start[order] = spans.starts_of(length[order]) + 2
        source_start = spans.starts_of(length) + rng.integers(0, 5)
        outs = [np.full((sum(lengths) + 3, *width), 7, dtype) for _ in range(2)]
        for twin, out in zip((spans, native), outs, strict=True):
            twin.copy_spans(source, source_start, length, out, out_start)
        assert outs[0].tobytes() == outs[1].tobytes()

    @pytest.mark.parametrize(
        ("source_start", "length", "out_start"),
        [(-1, 1, 0), (0, -1, 0), (0, 1, -1), (0, 11, 0), (10, 1, 0), (0, 1, 20), (2**62, 2**62, 0), (1, 2**63 - 1, 0)],
    )
    def test_a_span_outside_is_named_and_nothing_is_copied(self, source_start: int, length: int, out_start: int) -> None:
        texts = []
        for twin in (spans, native):
            source, out = np.ones(10), np.zeros(20)
            with pytest.raises(ValueError, match="copy_spans: span 1 takes") as caught:
                twin.copy_spans(source, np.array([0, source_start]), np.array([3, length]), out, np.array([0, out_start]))
            assert not out.any()
            texts.append(str(caught.value))
        assert texts[0] == texts[1]

    @pytest.mark.parametrize("place", [1, 2, 4], ids=["source_start", "length", "out_start"])
    def test_spans_that_the_copy_would_change_are_refused(self, place: int) -> None:
        """They were checked before: what is written over them would lead anywhere."""
        numbers = np.zeros(2, np.int64)
        arguments = [np.full(2, 2**40), np.zeros(2, np.int64), np.ones(2, np.int64), numbers, np.zeros(2, np.int64)]
        arguments[place] = numbers
        with pytest.raises(ValueError, match="overlap"):
            native.copy_spans(*arguments)
        assert not numbers.any()

    def test_strided_and_overlapping_arrays_are_copied_as_well(self) -> None:
        out = np.zeros(4, np.int64)
        native.copy_spans(np.arange(10)[::2], np.array([1]), np.array([3]), out, np.array([1]))
        assert out.tolist() == [0, 2, 4, 6]
        one = np.arange(6)
        native.copy_spans(one, np.array([0]), np.array([2]), one, np.array([4]))
        assert one.tolist() == [0, 1, 2, 3, 0, 1]

    def test_unaligned_numbers_are_read_as_well(self) -> None:
        start = np.frombuffer(b"?" + np.array([2, 0], np.int64).tobytes(), np.int64, offset=1)
        out = np.zeros(2, np.int64)
        native.copy_spans(np.arange(10), start, np.array([1, 1]), out, np.array([0, 1]))
        assert out.tolist() == [2, 0]

    def test_a_read_only_array_is_not_written(self) -> None:
        out = np.zeros(3)
        out.flags.writeable = False
        with pytest.raises((ValueError, BufferError)):
            native.copy_spans(np.ones(3), np.array([0]), np.array([1]), out, np.array([0]))
        assert not out.any()


class TestPlaceRows:
    @given(
        counts=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        dtypes=st.lists(st.sampled_from(["uint8", "int16", "float32", "int64", "complex128"]), max_size=3),
        width=st.sampled_from([(), (3,), (0,)]),
        seed=st.integers(0, 99),
    )
    def test_equals_the_python_twin(self, counts: list[int], dtypes: list[str], width: tuple[int, ...], seed: int) -> None:
        rng = np.random.default_rng(seed)
        num_rows = sum(counts)
        positions = np.split(rng.permutation(num_rows), np.cumsum(counts)[:-1])
        sources = [[rng.integers(0, 100, (n, *width)).astype(dtype) for n in counts] for dtype in dtypes]
        outs = [[np.full((num_rows, *width), 7, dtype) for dtype in dtypes] for _ in range(2)]
        for twin, out in zip((spans, native), outs, strict=True):
            twin.place_rows(sources, positions, out, num_rows)
        assert [out.tobytes() for out in outs[0]] == [out.tobytes() for out in outs[1]]

    @pytest.mark.parametrize(
        ("positions", "rows", "out_rows"), [([0, 4], 2, 4), ([-1, 0], 2, 4), ([0, 2**62], 2, 4), ([0, 1], 3, 4), ([0, 1], 2, 3)]
    )
    def test_wrong_calls_say_the_same_and_nothing_is_copied(self, positions: list[int], rows: int, out_rows: int) -> None:
        texts = []
        for twin in (spans, native):
            out = np.zeros(out_rows)
            with pytest.raises(ValueError) as caught:
                twin.place_rows([[np.ones(rows)]], [np.array(positions)], [out], 4)
            assert not out.any()
            texts.append(str(caught.value))
        assert texts[0] == texts[1]

    def test_rows_of_the_column_that_is_written_are_copied_as_they_were(self) -> None:
        for twin in (spans, native):
            column = np.arange(4)
            twin.place_rows([[column[:3]]], [np.array([1, 2, 3])], [column], 4)
            assert column.tolist() == [0, 0, 1, 2]

    def test_a_column_may_lie_beside_the_rows_that_it_gets(self) -> None:
        memory = np.arange(12)
        native.place_rows([[memory[4:8]], [memory[:4]]], [np.array([3, 2, 1, 0])], [memory[8:], np.zeros(4, np.int64)], 4)
        assert memory[8:].tolist() == [7, 6, 5, 4]

    def test_positions_that_the_copy_would_change_lead_nowhere(self) -> None:
        """They were checked before: what is written over them would lead anywhere."""
        places = np.arange(4)
        with pytest.raises(ValueError, match="lies where it would be written"):
            _core.place_rows((np.full(4, 2**40),), (places,), (places,), 4)
        assert places.tolist() == [0, 1, 2, 3]


class TestCutBytes:
    """Both twins cut the same objects, and refuse the same lengths."""

    @pytest.mark.parametrize("lengths", [[], [0], [0, 0, 3], [1, 0, 2, 1], [100] * 50, [200_000, 0, 100_000]])
    def test_the_spans_are_cut_end_to_end(self, lengths: list[int]) -> None:
        data = np.arange(sum(lengths) + 3).astype(np.uint8)
        whole, expected, start = data.tobytes(), [], 0
        for length in lengths:
            expected.append(whole[start : start + length])
            start += length
        for twin in (native.cut_bytes, spans.cut_bytes):
            values = twin(data, ints(*lengths))
            assert values == expected
            assert set(map(type, values)) <= {bytes}

    def test_the_objects_own_their_bytes(self) -> None:
        data = np.full(300_000, 7, np.uint8)
        values = native.cut_bytes(data, ints(100_000, 200_000))
        data[:] = 9
        assert values == [b"\7" * 100_000, b"\7" * 200_000]

    @pytest.mark.parametrize("lengths", [[-1], [5, -1], [11], [2**62, 2**62], [2**63 - 1, 2]])
    def test_wrong_lengths_are_refused(self, lengths: list[int]) -> None:
        with pytest.raises(ValueError, match="cut_bytes"):
            native.cut_bytes(np.zeros(10, np.uint8), ints(*lengths))
        with pytest.raises(ValueError, match="lengths"):
            _core.cut_bytes(np.zeros(10, np.uint8), ints(*lengths))


class TestWrongCalls:
    """Arguments are checked in C as well: a mistake in the wrapper is an exception, never a crash."""

    def arguments(self, **changed: Any) -> list[Any]:
        block = make_block([USUAL["full"]])
        plan = native_examples._plan_of(SCHEMA)
        results = np.empty((1, len(SCHEMA.fields), 2), np.uint32), np.empty((plan.num_levels, 1), np.int64), np.empty(1, np.int64)
        names = ["buffers", "buffer", "start", "length", "names", "fields", "is_sequence", "places", "counts", "codes"]
        values = [block.buffers, block.buffer, block.start, block.length, plan.names, plan.fields, False, *results]
        return list((dict(zip(names, values, strict=True)) | changed).values())

    def test_these_arguments_are_right(self) -> None:
        _core.count_values(*self.arguments())

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("buffers", ("text",)),
            ("buffers", [b"not a tuple"]),
            ("buffers", ()),
            ("buffer", np.array([2])),
            ("buffer", np.array([-1])),
            ("start", np.array([-1])),
            ("start", np.array([2**62])),
            ("start", np.array([0, 0])),
            ("start", np.array([0], np.int32)),
            ("start", np.array([0.0])),
            ("start", 5),
            ("length", np.array([-1])),
            ("length", np.array([2**63 - 1])),
            ("names", b""),
            ("fields", np.zeros((1, 8), np.int64)),
            ("fields", np.zeros((1, 7), np.int64)),
            ("places", np.empty((1, 1, 2), np.uint32)),
            ("places", b"read-only"),
            ("counts", np.empty((1, 1), np.int64)),
            ("codes", np.empty(2, np.int64)),
        ],
    )
    def test_count_values(self, name: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError, BufferError)):
            _core.count_values(*self.arguments(**{name: value}))

    def decoded(self, change: Callable[[dict[str, Any]], None]) -> int:
        """Decode after changing something between the passes."""
        payload = np.frombuffer(bytearray(USUAL["full"]), np.uint8)
        plan = native_examples._plan_of(SCHEMA)
        arguments = self.arguments(buffers=(payload, payload))
        _core.count_values(*arguments)
        columns = native_examples._allocate_columns(plan, arguments[8], native_examples.allocate_arrays)
        outputs = [array for column in columns.values() for array in (*column.lengths, column.values)]
        state = {"payload": payload, "places": arguments[7], "counts": arguments[8], "codes": arguments[9], "outputs": outputs}
        change(state)
        return _core.decode_examples(*arguments, tuple(state["outputs"]), None)

    def test_a_payload_changed_between_the_passes_is_reported(self) -> None:
        def break_a_varint(state: dict[str, Any]) -> None:
            state["payload"][USUAL["full"].index(b"\x7f\x80\x01\xff\x7f")] = 0xFF

        assert self.decoded(lambda state: None) == -1
        assert self.decoded(break_a_varint) == 0

    def test_places_outside_the_payload_are_reported(self) -> None:
        assert self.decoded(lambda state: state["places"].fill(2**31)) == 0

    @pytest.mark.parametrize(
        "change",
        [
            lambda state: state["outputs"].pop(),
            lambda state: state["outputs"].append(np.zeros(3)),
            lambda state: state["outputs"].__setitem__(0, np.zeros(2, np.int64)),
            lambda state: state["outputs"].__setitem__(0, b"12345678"),
            lambda state: state["counts"].__setitem__((0, 0), -1),
            lambda state: state["counts"].__setitem__((0, 0), 14),
            lambda state: state["counts"].fill(2**62),
            lambda state: state["outputs"].__setitem__(0, state["counts"].reshape(-1)[:1]),
        ],
        ids=["fewer", "more", "larger", "read_only", "negative", "another_count", "overflow", "counts"],
    )
    def test_decode_examples(self, change: Callable[[dict[str, Any]], None]) -> None:
        with pytest.raises((TypeError, ValueError, BufferError)):
            self.decoded(change)


class TestWrongTargets:
    """Rows of dense columns go where they are told to, if all of that is within the buffers."""

    ROWS = 3

    def decode(self, **changed: Any) -> int:
        schema = resolve_schema({"x": FixedLenFeature((3,), "int64"), "one": FixedLenFeature((), "float32")})
        block = make_block([encode_example({"x": [1, 2, 300], "one": 0.5})] * self.ROWS)
        plan = native_examples._plan_of(schema)
        codes = changed.get("codes", np.empty(self.ROWS, np.int64))
        results = np.empty((self.ROWS, 2, 2), np.uint32), np.empty((0, self.ROWS), np.int64), codes
        names = ["buffers", "buffer", "position", "offsets"]
        values = [(np.zeros(256, np.uint8), np.zeros(256, np.uint8)), ints(0, 1, 0), ints(0, 1, 1), ints(0, 128)]
        targets = dict(zip(names, values, strict=True)) | {name: changed[name] for name in names if name in changed}
        call = (block.buffers, block.buffer, block.start, block.length, plan.names, plan.fields, False, *results)
        return _core.decode_dense(*call, (), changed.get("targets", tuple(targets.values())))

    def test_these_are_right_and_everything_else_stays_as_it_was(self) -> None:
        buffers = (np.full(256, 7, np.uint8), np.full(256, 7, np.uint8))
        assert self.decode(buffers=buffers) == -1
        assert buffers[0][:48].view(np.int64).tolist() == [1, 2, 300] * 2
        assert buffers[1][24:48].view(np.int64).tolist() == [1, 2, 300]
        assert buffers[0][128:136].view(np.float32).tolist() == [0.5, 0.5]
        assert buffers[1][132:136].view(np.float32).tolist() == [0.5]
        assert set(buffers[0][48:128].tolist() + buffers[0][136:].tolist()) == {7}
        assert {*buffers[1][:24].tolist(), *buffers[1][48:132].tolist(), *buffers[1][136:].tolist()} == {7}

    def test_the_last_row_may_end_with_the_buffer(self) -> None:
        ends = (np.zeros(48 + 8, np.uint8),) * 2
        assert self.decode(buffers=ends, offsets=ints(0, 48)) == -1

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("targets", ()),
            ("targets", 5),
            ("targets", ([], 0, 0, 0)),
            ("buffers", ()),
            ("buffers", (b"read-only" * 40, np.zeros(256, np.uint8))),
            ("buffers", (np.zeros(256, np.uint8), np.zeros(131, np.uint8))),
            ("buffers", (np.zeros(256, np.uint8), "text")),
            ("buffer", ints(0, 2, 0)),
            ("buffer", ints(0, -1, 0)),
            ("buffer", ints(0, 1)),
            ("position", ints(0, -1, 0)),
            ("position", ints(0, 2**63 - 1, 0)),
            ("position", ints(0, 2**60, 0)),
            ("position", ints(0, 32, 0)),
            ("position", np.zeros(3)),
            ("offsets", ints(0)),
            ("offsets", ints(-1, 128)),
            ("offsets", ints(0, 249)),
            ("offsets", ints(0, 2**63 - 1)),
            ("offsets", ints(209, 128)),
        ],
    )
    def test_others_are_refused(self, name: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError, BufferError)):
            self.decode(**{name: value})

    def test_none_lies_where_the_results_are(self) -> None:
        codes = np.zeros(32, np.int64)
        with pytest.raises(ValueError, match="results"):
            self.decode(codes=codes[:3], buffers=(codes.view(np.uint8), np.zeros(256, np.uint8)))

    def test_there_are_no_outputs_for_what_has_targets(self) -> None:
        arguments = TestWrongCalls().arguments()
        _core.count_values(*arguments)
        columns = native_examples._allocate_columns(native_examples._plan_of(SCHEMA), arguments[8], allocate_arrays)
        outputs = tuple(array for column in columns.values() for array in (*column.lengths, column.values))
        targets = (np.zeros(1 << 12, np.uint8),), ints(0), ints(0), np.zeros(len(SCHEMA.fields), np.int64)
        with pytest.raises(ValueError, match="outputs"):
            _core.decode_examples(*arguments, outputs, targets)


def test_threads_do_not_disturb_each_other() -> None:
    """The GIL is released while C works; nothing is shared between calls."""
    blocks = [make_block([USUAL[name]] * 50) for name in ("full", "negative", "many", "unset")]
    expected = [native_examples.decode_examples(block, SCHEMA) for block in blocks]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: native_examples.decode_examples(blocks[i % 4], SCHEMA), range(80)))
    for i, columns in enumerate(results):
        for got, right in zip(columns, expected[i % 4], strict=True):
            assert got.values.tobytes() == right.values.tobytes()
            assert [n.tolist() for n in got.lengths] == [n.tolist() for n in right.lengths]
