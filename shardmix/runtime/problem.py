"""How an exception of a worker reaches the main process: as itself, with the worker's traceback as its cause.

Rule 1: the exception travels pickled, with the chain of its causes; what does not survive pickling is replaced by a RuntimeError
that carries its type and text. torch's own way keeps only a text, and calls the type with it, which loses the fields of an error.
Rule 2: a reply that carries a problem is an ordinary reply; nothing is raised in the transport.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import traceback
from typing import NamedTuple


class WorkerTraceback(Exception):
    """The traceback of a worker, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Problem(NamedTuple):
    """An exception on its way to the main process."""

    pickles: tuple[bytes, ...]  # the exception, its cause, the cause of that, …
    text: str  # the worker's traceback

    def exception(self) -> BaseException:
        """The exception with its causes, at their end the worker's traceback."""
        chain = [pickle.loads(link) for link in self.pickles]
        for effect, cause in zip(chain, [*chain[1:], WorkerTraceback(self.text)], strict=True):
            effect.__cause__ = cause
        first: BaseException = chain[0]
        return first


def describe_problem(error: BaseException, worker: int) -> Problem:
    """The problem that an exception of a worker is."""
    text = "".join(traceback.format_exception(error))
    pickles, link, seen = [], error, set[int]()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        pickles.append(_pickle_exception(link))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)  # type: ignore[assignment]
    return Problem(tuple(pickles), f"in worker {worker}:\n{text}")


def _pickle_exception(error: BaseException) -> bytes:
    """The exception as bytes that are known to come back; else of a stand-in that names its type."""
    try:
        pickled = _dump_plainly(error)
        pickle.loads(pickled)
    except Exception:  # whatever a user's class does when it is pickled
        kind = type(error)
        return pickle.dumps(RuntimeError(f"{kind.__module__}.{kind.__qualname__}: {error}"))
    return pickled


def _dump_plainly(error: BaseException) -> bytes:
    """Pickle an exception by its own reduction, whatever others (tblib, which dask installs) registered for exceptions."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out)
    table = {kind: how for kind, how in copyreg.dispatch_table.items() if not issubclass(kind, BaseException)}
    pickler.dispatch_table = table
    pickler.dump(error)
    return out.getvalue()
