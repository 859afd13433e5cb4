"""Exceptions that travel: as themselves where they survive pickling, with the worker's traceback at the end of their causes."""

from __future__ import annotations

import copyreg
import pickle
import threading
from typing import Any

import pytest

from shardmix import CorruptShardError, ParseError
from shardmix.runtime.problem import WorkerTraceback, describe_problem
from tests.runtime.loading import OddError


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def travelled(error: BaseException) -> BaseException:
    return pickle.loads(pickle.dumps(describe_problem(error, 3))).exception()


def chain(error: BaseException | None) -> list[BaseException]:
    links = []
    while error is not None:
        links.append(error)
        error = error.__cause__
    return links


def test_an_error_keeps_type_fields_and_notes() -> None:
    error = raised(CorruptShardError("bad", path="a.tfrecord", record=7, offset=99))
    error.add_note("a note")
    arrived = travelled(error)
    assert isinstance(arrived, CorruptShardError)
    assert (arrived.path, arrived.record, arrived.offset, str(arrived)) == ("a.tfrecord", 7, 99, str(error))
    assert arrived.__notes__ == ["a note"]


def test_causes_come_along_and_the_traceback_is_the_last() -> None:
    arrived = travelled(raised(ParseError("refused", path="a", record=1, offset=2), raised(OddError(5, "inner"))))
    kinds = [type(link) for link in chain(arrived)]
    assert kinds == [ParseError, OddError, WorkerTraceback]
    text = str(chain(arrived)[-1])
    assert text.startswith("\nin worker 3:\n")
    assert "raise error from cause" in text
    assert "direct cause" in text


def test_the_error_at_hand_when_another_was_raised_comes_along() -> None:
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904

    with pytest.raises(ValueError) as caught:
        fail()
    assert [type(link) for link in chain(travelled(caught.value))] == [ValueError, KeyError, WorkerTraceback]


class Unpicklable(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Unloadable(Exception):
    """Pickles, and does not come back."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def test_what_does_not_survive_pickling_is_told_by_type_and_text() -> None:
    for error, text in ((Unpicklable("no way"), "Unpicklable: no way"), (Unloadable(1, 2), "Unloadable: 1 and 2")):
        arrived = travelled(raised(error))
        assert type(arrived) is RuntimeError
        assert str(arrived).endswith(text)
        assert f"{text}" in str(chain(arrived)[-1])


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert [str(link) for link in chain(travelled(first))][:2] == ["a", "b"]


def test_a_traceback_reads_as_text() -> None:
    arrived: Any = travelled(raised(ValueError("x")))
    assert 'raise error from cause' in str(arrived.__cause__)


def test_what_others_registered_for_exceptions_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_all(error: BaseException) -> Any:
        return ValueError, ("registered",)

    monkeypatch.setitem(copyreg.dispatch_table, Unloadable, keep_all)
    arrived = travelled(raised(Unloadable(1, 2)))
    assert str(arrived).endswith("Unloadable: 1 and 2")
