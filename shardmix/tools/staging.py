"""Files that get their final names together, when all are whole.

Rule 1: they are written to a hidden folder beside the final names, so that taking the name is one atomic step each.
Rule 2: whatever ends the work (an exception, a full disk, Ctrl-C), the hidden folder is removed and no final name was touched.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ..format.output import sync_folder


@contextmanager
def open_staging(folder: str) -> Iterator[str]:
    """A hidden folder in `folder`, which is made if need be; removed in any case.

    with open_staging("out") as staging:
        write(os.path.join(staging, "a"))
        publish(staging, {"a": "out/a"})
    """
    folder = folder or "."
    is_new = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    staging = os.path.join(folder, f".shardmix-{secrets.token_hex(8)}.unfinished")
    os.mkdir(staging)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # it is not empty: the work was done
                os.rmdir(folder)


def publish(staging: str, finals: Mapping[str, str]) -> None:
    """Give files of the hidden folder their final names (name → path). When one cannot have it, those that have are taken back.

    Raises FileExistsError, before anything is done, where a final name is taken.
    """
    check_free(finals.values())
    published: list[str] = []
    try:
        for name, path in finals.items():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            os.replace(os.path.join(staging, name), path)
            published.append(path)
    except BaseException:
        for path in published:
            os.unlink(path)
        raise
    for folder in {os.path.dirname(path) for path in finals.values()}:
        sync_folder(folder)


def check_free(paths: Iterable[str]) -> None:
    """Raise FileExistsError where a path is taken."""
    for path in paths:
        if os.path.lexists(path):
            raise FileExistsError(f"{path}: is there already, and nothing is overwritten; give another name, or remove it")
