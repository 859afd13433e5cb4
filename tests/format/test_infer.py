"""Inferring features: what samples show, what a dict form asks for, which records are the sample."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmix.errors import CorruptShardError, StaleIndexError
from shardmix.format.features import FixedLenFeature, VarLenFeature, resolve_schema
from shardmix.format.framing import frame_record
from shardmix.format.index import Index, open_index
from shardmix.format.infer import SAMPLE_RECORDS, choose_sample, infer_features, sample_records
from shardmix.format.writer import ShardWriter
from tests.format import wire

pytestmark = pytest.mark.once

DECLARE = "declare VarLenFeature('int64')"


def infer(*values: Any) -> Any:
    """What is inferred for x of these values, one sample each; "absent" leaves x out."""
    payloads = [wire.plain_example(**({} if value == "absent" else {"x": value}), y=("int64", [0])) for value in values]
    return {field.name: field.feature for field in resolve_schema(None, None, payloads).fields}.get("x")


def infer_steps(*lists: list[Any]) -> Any:
    """What is inferred for the feature list x of these steps, one sample each."""
    payloads = [wire.sequence_example({"y": ("int64", [0])}, {"x": steps}) for steps in lists]
    return {field.name: field.feature for field in resolve_schema(None, None, payloads).fields if field.in_lists}.get("x")


class TestOfAllFeatures:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([("int64", [1]), ("int64", [2])], FixedLenFeature((), "int64")),
            ([("float", wire.float_bytes(1, 2))] * 2, FixedLenFeature((2,), "float32")),
            ([("bytes", [b"a"]), ("bytes", [b"bc"])], FixedLenFeature((), "bytes")),
            ([("bytes", [b"a", b""])], FixedLenFeature((2,), "bytes")),
            ([("int64", [1]), ("int64", [1, 2])], VarLenFeature("int64")),
            ([("int64", [1]), ("int64", [])], VarLenFeature("int64")),
            ([("int64", []), ("int64", [])], VarLenFeature("int64")),
            ([("int64", [1]), None], VarLenFeature("int64")),
            ([("int64", [1]), "absent"], VarLenFeature("int64")),
            ([None, None], None),
            (["absent"], None),
        ],
    )
    def test_fixed_only_where_every_length_agrees(self, values: list[Any], expected: Any) -> None:
        assert infer(*values) == expected

    @pytest.mark.parametrize(
        ("lists", "expected"),
        [
            ([[("int64", [1])] * 3, [("int64", [2])]], FixedLenFeature((), "int64")),
            ([[("int64", [1, 2])], []], FixedLenFeature((2,), "int64")),
            ([[("int64", [1]), ("int64", [1, 2])]], VarLenFeature("int64")),
            ([[("int64", [1]), None]], VarLenFeature("int64")),
            ([[("bytes", [])]], VarLenFeature("bytes")),
            ([[], []], None),
        ],
    )
    def test_of_lists_by_their_steps(self, lists: list[list[Any]], expected: Any) -> None:
        assert infer_steps(*lists) == expected

    def test_are_sorted_by_name(self) -> None:
        schema = resolve_schema(None, None, [wire.plain_example(b=("int64", [1]), a=("int64", [1]))])
        assert [field.name for field in schema.fields] == ["a", "b"]

    def test_kinds_must_agree(self) -> None:
        text = "^feature 'x': bytes in one record, int64 in another; features are of one kind, declare those to decode$"
        with pytest.raises(ValueError, match=text):
            infer(("int64", [1]), ("bytes", [b"a"]))

    def test_sequences_are_told_by_one_sample(self) -> None:
        samples = [wire.plain_example(y=("int64", [1])), wire.sequence_example({"y": ("int64", [1])}, {"x": [("int64", [1])]})]
        schema = resolve_schema(None, None, samples)
        assert (schema.is_sequence, [field.name for field in schema.fields]) == (True, ["y", "x"])

    def test_lists_are_left_alone_when_features_are_declared(self) -> None:
        samples = [wire.sequence_example({"y": ("int64", [1])}, {"x": [("int64", [1])]})]
        schema = resolve_schema({"y": "int"}, None, samples)
        assert (schema.is_sequence, [field.name for field in schema.fields]) == (False, ["y"])

    def test_the_context_is_inferred_beside_declared_lists(self) -> None:
        samples = [wire.sequence_example({"y": ("int64", [1])}, {"x": [("int64", [1])], "z": []})]
        schema = resolve_schema(None, {"x": VarLenFeature("int64")}, samples)
        assert [(field.name, field.in_lists) for field in schema.fields] == [("y", False), ("x", True)]

    def test_no_records(self) -> None:
        with pytest.raises(ValueError, match=r"^features: there are no records to infer them from; declare them$"):
            resolve_schema(None, None, [])

    @pytest.mark.parametrize("payload", [b"{'a': 1}", b"\x08\x01", wire.plain_example(x=None) + wire.delimited(3, b"")])
    def test_records_that_are_no_examples(self, payload: bytes) -> None:
        with pytest.raises(ValueError) as caught:
            resolve_schema(None, None, [wire.plain_example(x=("int64", [1])), payload])
        assert str(caught.value) == (
            f"features: sampled record 1 of {len(payload)} bytes is no tf.train.Example or SequenceExample "
            f"(it begins with {payload[:16]!r}); for records of another format subclass ShardDataset and write parse"
        )

    def test_records_without_features(self) -> None:
        text = "^features: none in 2 sampled records; for records of another format subclass ShardDataset and write parse$"
        with pytest.raises(ValueError, match=text):
            resolve_schema(None, None, [b"", b"\n\x00"])


class TestDictForms:
    SAMPLES = (
        wire.plain_example(
            i=("int64", [1]),
            f=("float", wire.float_bytes(1, 2)),
            b=("bytes", [b"a"]),
            v=("int64", [1]),
            e=("int64", []),
        ),
        wire.plain_example(
            i=("int64", [2]),
            f=("float", wire.float_bytes(3, 4)),
            b=("bytes", [b""]),
            v=("int64", [1, 2, 3]),
            e=("int64", []),
            u=None,
            r=("int64", [1]),
        ),
    )

    def resolve(self, features: Any) -> dict[str, Any]:
        return {field.name: field.feature for field in resolve_schema(features, None, self.SAMPLES).fields}

    def test_infer_the_fixed_length(self) -> None:
        assert self.resolve({"f": "float", "i": "int", "b": "byte"}) == {
            "f": FixedLenFeature((2,), "float32"),
            "i": FixedLenFeature((), "int64"),
            "b": FixedLenFeature((), "bytes"),
        }

    def test_of_none_and_of_a_list_infer_the_kind_too(self) -> None:
        expected = {"b": FixedLenFeature((), "bytes"), "i": FixedLenFeature((), "int64")}
        assert self.resolve({"b": None, "i": None}) == expected == self.resolve(["b", "i"])

    def test_stand_beside_declared_features(self) -> None:
        assert self.resolve({"v": VarLenFeature("int64"), "i": "int"}) == {
            "v": VarLenFeature("int64"),
            "i": FixedLenFeature((), "int64"),
        }

    @pytest.mark.parametrize(
        ("features", "text"),
        [
            ({"v": "int"}, "'v': 1 to 3 values in the sampled records, and 'int' asks for a fixed number; " + DECLARE),
            ({"r": None}, "'r': missing in 1 of 2 sampled records, and None asks for a fixed number; " + DECLARE),
            ({"e": "int"}, "'e': no values in the sampled records, and 'int' asks for a fixed number; " + DECLARE),
            ({"i": "byte"}, "'i': declared 'byte', which is bytes; the records hold int64"),
            ({"u": "int"}, "'u': set in none of 2 sampled records; declare its dtype"),
            ({"lable": "int"}, "'lable': in none of 2 sampled records; their features: 'b', 'e', 'f', 'i', 'r', 'u', 'v'"),
        ],
    )
    def test_that_cannot_be_filled_in(self, features: Any, text: str) -> None:
        with pytest.raises(ValueError) as caught:
            self.resolve(features)
        assert str(caught.value) == f"feature {text}"

    def test_of_lists(self) -> None:
        lists = {"x": [("int64", [1])], "v": [("int64", [1]), ("int64", [])], "u": [("int64", [1]), None]}
        samples = [wire.sequence_example({}, lists)]
        (field,) = resolve_schema({}, {"x": "int"}, samples).fields
        assert field.feature == FixedLenFeature((), "int64")
        with pytest.raises(ValueError, match=r"^feature 'v': 0 to 1 values in the sampled steps, and 'int' asks"):
            resolve_schema({}, {"v": "int"}, samples)
        with pytest.raises(ValueError, match=r"^feature 'u': unset in 1 of 2 sampled steps, and 'int' asks"):
            resolve_schema({}, {"u": "int"}, samples)
        with pytest.raises(ValueError, match=r"^feature 'y': in none of 1 sampled records; their feature lists: 'u', 'v', 'x'$"):
            resolve_schema({}, {"y": "int"}, samples)


class TestTheSample:
    @given(counts=st.lists(st.integers(0, 60), max_size=40), compressed=st.booleans())
    def test_is_all_or_256_records_each_once(self, counts: list[int], compressed: bool) -> None:
        sample = choose_sample(np.array(counts, np.int64), np.full(len(counts), compressed))
        chosen = [(shard, record) for shard, records in sample for record in records.tolist()]
        assert len(chosen) == len(set(chosen)) == min(sum(counts), SAMPLE_RECORDS)
        assert chosen == sorted(chosen)
        assert all(record < counts[shard] for shard, record in chosen)

    def test_is_spread_over_16_shards(self) -> None:
        sample = choose_sample(np.full(100, 1000), np.zeros(100, np.bool_))
        assert [shard for shard, _ in sample] == [shard * 100 // 16 for shard in range(16)]
        assert {tuple(records.tolist()) for _, records in sample} == {tuple(i * 1000 // 16 for i in range(16))}

    def test_is_the_beginning_of_a_compressed_shard(self) -> None:
        ((shard, records),) = choose_sample(np.array([0, 1000]), np.ones(2, np.bool_))
        assert (shard, records.tolist()) == (1, list(range(256)))

    def test_takes_more_of_the_others_where_a_shard_is_small(self) -> None:
        sample = choose_sample(np.array([2, 1000, 1000]), np.zeros(3, np.bool_))
        assert [len(records) for _, records in sample] == [2, 127, 127]

    @pytest.mark.parametrize("compression_type", [None, "gzip", "zlib"])
    def test_holds_the_payloads(self, make_corpus: Callable[..., str], compression_type: str | None) -> None:
        index = open_index(make_corpus([3, 0, 2], compression_type=compression_type))
        payloads = [bytes(payload) for payload in sample_records(index)]
        assert payloads == [wire.plain_example(id=("int64", [number])) for number in (0, 1, 2, 2000, 2001)]

    def test_is_checked(self, make_corpus: Callable[..., str]) -> None:
        pattern = make_corpus([3])
        index = open_index(pattern)
        (path,) = Path(pattern).parent.glob("*.tfrecord")
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        index = open_index(pattern)
        with pytest.raises(CorruptShardError, match="record 2 at byte .*: payload CRC mismatch"):
            list(sample_records(index))
        assert len(list(sample_records(index, on_corrupt="skip"))) == 2

    def test_a_shard_that_was_replaced_is_told_from_a_damaged_one(self, make_corpus: Callable[..., str]) -> None:
        pattern = make_corpus([3])
        index = open_index(pattern)
        (path,) = Path(pattern).parent.glob("*.tfrecord")
        path.write_bytes(gzip.compress(path.read_bytes()))
        with pytest.raises(StaleIndexError, match="open the data set again, and it is indexed anew"):
            list(sample_records(index, on_corrupt="skip"))

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (frame_record(b"another"), "payload of 7 bytes where the index says 15; the index is of another file"),
            (frame_record(bytes(15))[:-1], "cut: a payload of 15 bytes"),
            (b"", "cut: the file ends 0 bytes into the frame"),
        ],
    )
    def test_so_is_one_whose_time_does_not_tell(
        self, make_corpus: Callable[..., str], data: bytes, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pattern = make_corpus([1])
        index = open_index(pattern)
        (path,) = Path(pattern).parent.glob("*.tfrecord")
        path.write_bytes(data)
        monkeypatch.setattr(Index, "check", lambda *arguments: None)
        with pytest.raises(StaleIndexError, match=f"record 0 at byte 0: {text}"):
            list(sample_records(index, on_corrupt="skip"))


class TestInferFeatures:
    def test_of_a_corpus(self, make_corpus: Callable[..., str]) -> None:
        inferred = infer_features(make_corpus([3, 0, 2]))
        assert inferred == ({"id": FixedLenFeature((), "int64")}, None)

    def test_can_be_pasted(self, tmp_path: Path) -> None:
        with ShardWriter(tmp_path / "x-{}.tfrecord", num_shards=2) as writer:
            for number in range(4):
                writer.write({"image": b"\0" * number, "label": number, "tags": ["a"] * number or np.empty(0, "S1")})
        inferred = infer_features(tmp_path)
        assert repr(inferred.features) == (
            "{'image': FixedLenFeature((), 'bytes'), 'label': FixedLenFeature((), 'int64'), 'tags': VarLenFeature('bytes')}"
        )
        assert eval(repr(inferred.features)) == inferred.features

    def test_of_no_records(self, tmp_path: Path) -> None:
        (tmp_path / "empty.tfrecord").touch()
        with pytest.raises(ValueError, match="there are no records to infer them from"):
            infer_features(tmp_path)
