"""The source of a batch: where each of its rows came from."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import torch

from shardmix.runtime.source_rows import Source, attach_source

NUMBERS = np.arange(2)
FLAGS = np.array([False, True])
SOURCE = Source.of(NUMBERS, NUMBERS + 1, NUMBERS + 2, NUMBERS + 3, NUMBERS + 4, FLAGS, ~FLAGS)


def test_a_source_is_a_named_tuple_of_tensors_over_the_arrays() -> None:
    assert SOURCE._fields == ("epoch", "shard", "record", "lane", "worker", "is_pad", "is_fill")
    assert SOURCE.worker.tolist() == [4, 5]
    assert (SOURCE.record.dtype, SOURCE.is_fill.dtype) == (torch.int64, torch.bool)
    assert SOURCE.epoch.data_ptr() == NUMBERS.ctypes.data


def test_a_dict_batch_gets_a_key_and_the_dict_that_was_given_stays_as_it_is() -> None:
    given = OrderedDict(x=torch.zeros(2))
    batch = attach_source(given, SOURCE)
    assert type(batch) is OrderedDict
    assert list(batch) == ["x", "source"]
    assert batch["source"] is SOURCE
    assert list(given) == ["x"]


@pytest.mark.parametrize("batch", [torch.zeros(2), [torch.zeros(2), torch.zeros(2)], ["a", "b"]])
def test_any_other_batch_comes_with_its_source(batch: object) -> None:
    assert attach_source(batch, SOURCE) == (batch, SOURCE)


def test_a_batch_that_has_a_value_of_that_name_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="has a 'source' of its own"):
        attach_source({"source": ["a", "b"]}, SOURCE)
