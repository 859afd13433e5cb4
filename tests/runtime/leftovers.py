"""What a loader could leave behind: processes, descriptors, threads, temporary files, shared memory."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

Left = TypeVar("Left")
SHARED_MEMORY = ("sem.", "torch_", "psm_")  # how Python and torch name what they share


def wait_for_none(find: Callable[[], Left], seconds: float) -> Left:
    """What is found, once that is nothing, or else after some seconds."""
    patience = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < patience:
        time.sleep(0.02)
    return left


def descriptors() -> Counter[str]:
    """What this process has open, by kind."""
    links: list[str] = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that this listing itself was
            links.append(os.readlink(f"/proc/self/fd/{entry}").split(":")[0])
    return Counter(links)


def open_since(before: Counter[str]) -> Counter[str]:
    """What is open and was not before; the threads of closed queues have some seconds to end by themselves."""
    return wait_for_none(lambda: descriptors() - before, 5)


def processes_of_session(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry))
    return found


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder for temporary files whose path is short: that of a socket in it may have 107 bytes, and pytest's are long."""
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        yield Path(folder)


def temporary_files(folder: Path) -> list[str]:
    """What is in a folder for temporary files, but for the locks of indexes, which stay there (format/index_store.py)."""
    locks = folder / f"shardmix-{os.getuid()}"
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path != locks and path.parent != locks]


def shared_memory() -> set[str]:
    """Names in /dev/shm of the kind that Python and torch give."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(SHARED_MEMORY)}


# What the C library calls a semaphore for the microseconds in which it makes it: a kill just then leaves it, and nothing tells
# whose it was. A program makes some for torch's queues as it starts; its workers make none.
HALF_MADE = re.compile(r"sem\.[A-Za-z0-9]{6}")


def forgotten_memory(before: set[str]) -> set[str]:
    """Names in /dev/shm that were not there before and that no process has mapped: nobody will ever remove them."""
    found: dict[str, str] = {}
    for name in shared_memory() - before:
        with contextlib.suppress(FileNotFoundError):
            found[name] = str(os.stat(f"/dev/shm/{name}").st_ino)  # (a semaphore is mapped before it has its name)
    mapped: set[str] = set()
    for entry in os.listdir("/proc") if found else []:
        if entry.isdigit():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{entry}/maps").read_text().splitlines()
                mapped.update(line.split()[4] for line in lines if "/dev/shm/" in line)
    return {name for name, inode in found.items() if inode not in mapped} & shared_memory()
