"""Python's fork server, started so that nothing of it is left when the process that it serves is killed.

The server listens at a socket in a temporary folder, which the process that started it removes when it ends, and leaves when it
is killed. The server itself ends a little later, with the last process that it started: so it is the server that removes both.

Rule 1: only a folder that was made here, for the server, has an end of this kind: one that this process has already, or has from
the process that started it, is not touched. So who started the server owns its folder; a file in it tells who that is.
Rule 2: the folder is removed once its owner is gone, and only if nothing else is in it.
Rule 3: the list of modules that the user's server loads stays the user's, and so does a server that runs already.

The server imports this module to learn of it, so it needs the standard library only. (Python 3.11 to 3.14 are alike in this.
Where the server cannot import it, its folder is left by a kill, as Python leaves it.)
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from multiprocessing import forkserver, process, resource_tracker, util
from typing import Any

OWNER = "shardmix-owner"  # the file that tells the owner's pid
PATIENCE_SECONDS = 2.0

_starting = threading.Lock()


def start_fork_server() -> None:
    """Start the fork server where none runs yet."""
    with _starting:
        resource_tracker.ensure_running()  # first: nobody removes the folder between its making and the start of the server
        if not _owns_folder():
            forkserver.ensure_running()
            return
        server: Any = forkserver._forkserver
        of_the_user = server._preload_modules
        server._preload_modules = [*of_the_user, __name__]
        try:
            forkserver.ensure_running()
        finally:
            server._preload_modules = of_the_user


def _owns_folder() -> bool:
    """Whether the folder in which a server would listen was made here, now or for a server before."""
    config: Any = process.current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is not None:
        return _read_owner(config["tempdir"]) == os.getpid()
    with open(os.path.join(util.get_temp_dir(), OWNER), "x") as file:
        file.write(str(os.getpid()))
    return True


def _read_owner(folder: str) -> int | None:
    try:
        with open(os.path.join(folder, OWNER)) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _remove_folder(server: int) -> None:
    """In the server, at its end: remove socket and folder if their owner is gone."""
    address = _address()
    if os.getpid() != server or not isinstance(address, str):
        return  # a process that it started, or the server never came to listen
    folder = os.path.dirname(address)
    owner, patience = _read_owner(folder), time.monotonic() + PATIENCE_SECONDS
    while owner == os.getppid() and time.monotonic() < patience:
        time.sleep(0.01)  # a process that dies closes what it has open, the pipe to the server too, before it is gone
    if owner in (None, os.getppid()):
        return
    with contextlib.suppress(OSError):
        os.unlink(address)
        os.unlink(os.path.join(folder, OWNER))
        os.rmdir(folder)


def _is_fork_server() -> bool:
    """Whether this process is one, in the act of loading its modules. (Those that it starts know its address.)"""
    is_started_as_one = any("forkserver import main" in argument for argument in sys.orig_argv)
    return is_started_as_one and _address() is None


def _address() -> Any:
    server: Any = forkserver._forkserver
    return server._forkserver_address


if _is_fork_server():
    atexit.register(_remove_folder, os.getpid())
