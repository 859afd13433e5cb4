"""Samples become columns, columns batches: the batches that torch's default_collate makes, the samples that went in."""

from __future__ import annotations

import enum
import pickle
from collections import Counter, OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from shardmix.format.columns import Column, ColumnSpec, allocate_arrays, slice_rows
from shardmix.runtime.samples import (
    PICKLED,
    RaggedList,
    collate,
    mark_ragged,
    pack_samples,
    structure_of_features,
    unpack_samples,
)
from tests.runtime.loading import unpack_batch

Point = namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 1


def is_same(a: Any, b: Any) -> bool:
    """Equal in type, dtype, shape and value, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad and torch.equal(a, b)
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        parts_a, parts_b = list(iter(a)), list(iter(b))
        return len(parts_a) == len(parts_b) and all(map(is_same, parts_a, parts_b))
    return bool(a == b)


def scalars(dtype: str) -> list[Any]:
    return [np.dtype(dtype).type(value) for value in (0, 1, 1)]


def arrays(dtype: str, *shape: int) -> list[Any]:
    return [np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype) + np.dtype(dtype).type(row % 2) for row in range(3)]


DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
PACKED: dict[str, list[Any]] = {
    "int": [1, -(2**63), 2**63 - 1],
    "float": [0.1, -0.0, float("inf")],
    "bool": [True, False, True],
    "bytes": [b"", b"a\0\0", b"\xff" * 9],
    "str": ["", "zwölf", "\udcff"],
    "empty array": [np.zeros((0, 3)), np.zeros((0, 3))],
    "array of one value": [np.array(1), np.array(2)],
    "strided array": [np.arange(6).reshape(2, 3).T, np.arange(12).reshape(2, 6)[:, ::2].T],
    "tensor": [torch.tensor([1.5, 2.5]), torch.tensor([3.5, 4.5])],
    "scalar tensor": [torch.tensor(1), torch.tensor(2)],
    "bfloat16": [torch.tensor([1.5, 2.5]).bfloat16(), torch.tensor([3.5, 4.5]).bfloat16()],
    "scalar bfloat16": [torch.tensor(1.5).bfloat16(), torch.tensor(2.5).bfloat16()],
    "complex tensor": [torch.tensor([1 + 2j]).conj(), torch.tensor([3 + 4j])],
    "strided tensor": [torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T + 1],
    "expanded tensor": [torch.tensor([1]).expand(3), torch.tensor([2]).expand(3)],
    "tuple": [(1, "a"), (2, "b")],
    "list": [[1, b"a"], [2, b"b"]],
    "dict": [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}],
    "dict of other keys": [{1: 1.0, (2, 3): 2.0}, {1: 3.0, (2, 3): 4.0}],
    "ordered dict": [OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)],
    "named tuple": [Point(1, np.float32(2)), Point(3, np.float32(4))],
    "nested": [{"p": Point([1, 2], {"t": (b"a", 3.0)}), "q": ()}, {"p": Point([3, 4], {"t": (b"b", 6.0)}), "q": ()}],
    "one sample": [{"x": np.arange(3)}],
    **{f"scalar {dtype}": scalars(dtype) for dtype in DTYPES if dtype != "uint64"},  # which torch refuses: see below
    **{f"array {dtype}": arrays(dtype, 2, 2) for dtype in DTYPES},
    **{f"tensor {dtype}": [torch.from_numpy(array) for array in arrays(dtype, 3)] for dtype in DTYPES},
}
NOT_UNIFORM: dict[str, list[Any]] = {
    "whole numbers and fractions": [1, 2.5],
    "a number beyond 64 bits": [1, 2**64],
    "arrays of two dtypes": [np.zeros(2, np.float32), np.zeros(2, np.float64)],
    "arrays of two shapes": [np.zeros(2), np.zeros(3)],
    "dicts of two orders": [{"x": 1, "y": 2}, {"y": 3, "x": 4}],
    "dicts of other keys": [{"x": 1}, {"x": 2, "y": 3}],
    "lists of two lengths": [[1], [1, 2]],
    "None": [None, None],
    "no values": [{}, {}],
    "an enumeration": [Colour.RED, Colour.RED],
    "a dict of another type": [Counter("ab"), Counter("ab")],
    "a tensor that wants its gradient": [torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)],
    "a parameter": [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))],
    "sparse": [torch.eye(2).to_sparse(), torch.eye(2).to_sparse()],
    "swapped bytes": [np.zeros(2, ">i4"), np.zeros(2, ">i4")],
    "arrays of strings": [np.array(["a"]), np.array(["b"])],
    "dates": [np.datetime64("2020-01-01"), np.datetime64("2020-01-02")],
    "a set": [{1}, {2}],
    "torch and numpy": [torch.zeros(2), np.zeros(2)],
}


def outcome(collate_fn: Any, samples: list[Any]) -> Any:
    try:
        return collate_fn(samples)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", PACKED)
def test_a_batch_of_columns_is_what_default_collate_makes(name: str) -> None:
    structure, columns = pack_samples(PACKED[name])
    assert structure != PICKLED
    assert is_same(unpack_batch(structure, columns), default_collate(PACKED[name]))
    assert is_same(collate(PACKED[name]), default_collate(PACKED[name]))


@pytest.mark.parametrize("name", [*PACKED, *NOT_UNIFORM])
def test_samples_of_columns_are_those_packed(name: str) -> None:
    samples = (PACKED | NOT_UNIFORM)[name]
    structure, columns = pack_samples(samples)
    again = unpack_samples(structure, columns)
    if name == "sparse":
        again, samples = [sample.to_dense() for sample in again], [sample.to_dense() for sample in samples]
    assert is_same(again, samples)


@pytest.mark.parametrize("name", NOT_UNIFORM)
def test_samples_that_are_not_alike_travel_pickled_and_collate_as_torch_does(name: str) -> None:
    structure, columns = pack_samples(NOT_UNIFORM[name])
    assert structure == PICKLED
    assert [len(column.lengths[0]) for column in columns] == [len(NOT_UNIFORM[name])]
    through_columns = outcome(lambda _: unpack_batch(structure, columns), NOT_UNIFORM[name])
    assert is_same(through_columns, outcome(default_collate, NOT_UNIFORM[name]))


LEAVES = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(max_size=3),
    st.text(max_size=3),
    st.integers(0, 255).map(lambda value: np.full((2, 1), value, np.uint8)),
    st.integers(-9, 9).map(np.int32),
    st.integers(-9, 9).map(lambda value: torch.tensor([value, value])),
]


def in_order(sample: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(sample.items()))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Strategies of strategies: a structure is drawn once, its samples from it."""
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: st.tuples(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: st.tuples(*parts).map(list)),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(lambda parts: st.fixed_dictionaries(parts).map(in_order)),
        st.tuples(inner, inner).map(lambda parts: st.builds(Point, *parts)),
    )


SAMPLES = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=6).flatmap(
    lambda kind: st.lists(kind, min_size=1, max_size=4)
)


@settings(max_examples=200, deadline=None)
@given(SAMPLES)
def test_any_nesting_of_values_goes_through_columns_unchanged(samples: list[Any]) -> None:
    structure, columns = pack_samples(samples)
    assert structure != PICKLED
    assert is_same(unpack_samples(structure, columns), samples)
    assert is_same(unpack_batch(structure, columns), default_collate(samples))


# Memory.


def test_allocate_is_called_once_for_all_columns() -> None:
    calls = []

    def allocate(requests: Any) -> Any:
        calls.append(requests)
        return allocate_arrays(requests)

    pack_samples([{"image": np.zeros((2, 2), np.uint8), "name": "a"}], allocate)
    assert calls == [[((1, 2, 2), "uint8"), ((1,), "uint8"), ((1,), np.int64)]]


def test_a_batch_is_over_the_memory_of_its_columns() -> None:
    structure, [column] = pack_samples([np.zeros(2), np.zeros(2)])
    batch = unpack_batch(structure, [column])
    batch[1, 0] = 7
    assert column.values.tolist() == [[0, 0], [7, 0]]


def test_unpacked_samples_own_their_values() -> None:
    values = [[np.zeros(2), torch.zeros(2), torch.zeros(2).bfloat16(), mark_ragged([1, 2])] for _ in range(2)]
    structure, columns = pack_samples(values)
    first, second = unpack_samples(structure, columns)
    for part in first:
        part[:] = 9
    assert is_same(second, values[1])
    assert is_same(unpack_samples(structure, columns), values)


def test_packing_copies() -> None:
    sample = np.zeros(2)
    _, [column] = pack_samples([sample])
    sample[:] = 9
    assert column.values.tolist() == [[0, 0]]


def test_memory_mapped_arrays_are_packed_as_arrays(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "values", np.uint8, "w+", shape=(3, 2))
    mapped[:] = [[1, 2], [3, 4], [5, 6]]
    structure, columns = pack_samples(list(mapped))
    assert structure.kinds == ("array",)
    assert unpack_batch(structure, columns).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_arrays_that_torch_refuses_or_warns_of_are_packed() -> None:
    backwards, read_only = np.array([1, 2])[::-1], np.frombuffer(bytes(16), np.int64)
    assert unpack_batch(*pack_samples([backwards, read_only])).tolist() == [[2, 1], [0, 0]]


def test_a_pickled_view_takes_its_own_items_along_and_not_its_whole_storage() -> None:
    storage = torch.zeros(1_000_000)
    structure, [column] = pack_samples([{"row": storage[:2], "note": None}])
    assert structure == PICKLED
    assert len(column.values) < 1000


def test_samples_that_do_not_pickle_are_a_type_error_that_says_what_to_return() -> None:
    with pytest.raises(TypeError, match=r"type function cannot be sent from a worker.*return values that pickle"):
        pack_samples([lambda: 0])


def test_no_samples_are_no_rows() -> None:
    structure, [column] = pack_samples([])
    assert structure == PICKLED
    assert column.lengths[0].tolist() == []
    assert unpack_samples(structure, [column]) == []


def test_collating_no_samples_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        collate([])


# Structures.


def test_equal_structures_compare_equal_and_pickle_to_equal_bytes() -> None:
    def structure(prefix: str) -> Any:
        samples = [{prefix + "x": (1, np.zeros((2, 2))), prefix + "y": Point(b"a", "a")}]
        return pack_samples(samples)[0]

    one, other = structure("".join(["fea", "ture "])), structure("".join(["featu", "re "]))
    assert one == other
    assert pickle.dumps(one) == pickle.dumps(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert structure("a") != structure("b")


def test_columns_are_named_by_their_place() -> None:
    structure, _ = pack_samples([{"a": 1, "b": [2, Point(3, 4)]}])
    assert [spec.name for spec in structure.specs] == ["a", "b.0", "b.1.0", "b.1.1"]


def test_some_rows_of_packed_columns_are_those_samples() -> None:
    samples = [{"name": str(row) * row, "ids": mark_ragged(range(row)), "n": row} for row in range(5)]
    structure, columns = pack_samples(samples)
    assert is_same(unpack_samples(structure, [slice_rows(column, 1, 4) for column in columns]), samples[1:4])


def test_collate_takes_uint64_scalars_which_torch_refuses() -> None:
    batch = collate([np.uint64(2**64 - 1), np.uint64(0)])
    assert batch.dtype == torch.uint64
    assert batch.tolist() == [2**64 - 1, 0]


# Decoded examples.


def columns_of_features() -> list[Column]:
    two_rows, letters = np.array([2, 1]), np.frombuffer(bytearray(b"abc"), np.uint8)
    return [
        Column(ColumnSpec("label", "int64", (), 0, False), np.array([1, 2]), ()),
        Column(ColumnSpec("image", "uint8", (2,), 0, False), np.array([[1, 2], [3, 4]], np.uint8), ()),
        Column(ColumnSpec("name", "uint8", (), 1, True), letters, (two_rows,)),
        Column(ColumnSpec("ids", "float32", (), 1, False), np.array([1, 2, 3], np.float32), (two_rows,)),
        Column(ColumnSpec("tags", "uint8", (), 2, True), letters, (two_rows, np.array([1, 2, 0]))),
        Column(ColumnSpec("steps", "int64", (), 2, False), np.array([1, 2, 3]), (two_rows, np.array([1, 2, 0]))),
    ]


def test_columns_of_features_are_a_dict_by_name() -> None:
    columns = columns_of_features()
    batch = unpack_batch(structure_of_features([column.spec for column in columns]), columns)
    assert list(batch) == ["label", "image", "name", "ids", "tags", "steps"]
    assert is_same(batch["label"], torch.tensor([1, 2]))
    assert is_same(batch["image"], torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8))
    assert batch["name"] == [b"ab", b"c"]
    assert batch["ids"].to_list() == [[1, 2], [3]]
    assert batch["tags"] == [[b"a", b"bc"], [b""]]
    assert batch["steps"].to_list() == [[[1], [2, 3]], [[]]]


def test_samples_of_features_are_numpy_values_and_bytes() -> None:
    columns = columns_of_features()
    structure = structure_of_features([column.spec for column in columns])
    first, _ = unpack_samples(structure, columns)
    assert is_same(
        first,
        {
            "label": np.int64(1),
            "image": np.array([1, 2], np.uint8),
            "name": b"ab",
            "ids": mark_ragged(np.array([1, 2], np.float32)),
            "tags": RaggedList([b"a", b"bc"], structure.specs[4]),
            "steps": RaggedList([np.array([1]), np.array([2, 3])], structure.specs[5]),
        },
    )


def test_samples_of_features_collate_and_pack_to_the_batch_of_their_columns() -> None:
    columns = columns_of_features()
    structure = structure_of_features([column.spec for column in columns])
    batch, samples = unpack_batch(structure, columns), unpack_samples(structure, columns)
    assert is_same(collate(samples), batch)
    packed, again = pack_samples(samples)
    assert packed == structure
    assert is_same(unpack_batch(packed, again), batch)


def test_columns_without_rows_are_an_empty_batch() -> None:
    columns = [slice_rows(column, 0, 0) for column in columns_of_features()]
    structure = structure_of_features([column.spec for column in columns])
    batch = unpack_batch(structure, columns)
    assert batch["image"].shape == (0, 2)
    assert (len(batch["ids"]), batch["tags"], len(batch["steps"])) == (0, [], 0)
    assert unpack_samples(structure, columns) == []
