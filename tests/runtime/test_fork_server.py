"""Nothing is left of a fork server whose process was killed, and what is not ours is left alone. (Each case in a program.)"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, process, util
from pathlib import Path
from typing import Any

import pytest

from shardmix.runtime.fork_server import OWNER, start_fork_server
from tests.runtime.leftovers import processes_of_session, short_folder, wait_for_none

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.once


class Program:
    """A program that runs one of the functions below, with a folder of its own for temporary files."""

    def __init__(self, temporary: Path, function: Any) -> None:
        self.temporary = temporary
        code = f"from tests.runtime.test_fork_server import {function.__name__} as run; run()"
        self.popen = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def answer(self) -> str:
        """The next line that it prints."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def end(self, by: int = 0) -> list[str]:
        """Kill it, or let it end. Returns what is left in its folder."""
        if by:
            os.kill(self.popen.pid, by)
        self.popen.wait()
        assert wait_for_none(lambda: processes_of_session(self.popen.pid), 30) == []
        return sorted(str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*"))


@pytest.fixture
def run() -> Iterator[Callable[[Any], Program]]:
    """run(function) runs it as a program, which does not outlive the test."""
    programs: list[Program] = []
    with short_folder() as folder:

        def start(function: Any) -> Program:
            programs.append(Program(folder, function))
            return programs[-1]

        yield start
        for program in programs:
            with program.popen:
                program.popen.kill()


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def serve() -> None:
    start_fork_server()
    say(sorted(os.listdir(util.get_temp_dir()))[1])
    time.sleep(1000)


def test_nothing_is_left_when_the_process_is_killed(run: Callable[[Any], Program]) -> None:
    program = run(serve)
    assert program.answer() == OWNER
    assert program.end(signal.SIGKILL) == []


def test_nothing_is_left_when_the_process_is_killed_before_the_server_has_begun(run: Callable[[Any], Program]) -> None:
    program = run(serve)
    assert not wait_for_none(lambda: not list(program.temporary.glob("*/listener-*")), 60)
    assert program.end(signal.SIGKILL) == []


def serve_twice() -> None:
    """The first server is killed."""
    start_fork_server()
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    time.sleep(0.2)
    start_fork_server()
    say(len(os.listdir(util.get_temp_dir())))


def test_a_server_that_died_is_replaced_in_the_same_folder(run: Callable[[Any], Program]) -> None:
    program = run(serve_twice)
    assert program.answer() == "3"
    assert program.end() == []


def serve_in_a_folder_of_the_user() -> None:
    say(util.get_temp_dir())
    start_fork_server()
    time.sleep(1000)


def test_a_folder_that_was_there_before_is_left(run: Callable[[Any], Program]) -> None:
    program = run(serve_in_a_folder_of_the_user)
    folder = os.path.basename(program.answer())
    assert not wait_for_none(lambda: not list(program.temporary.glob("*/listener-*")), 60)
    left = program.end(signal.SIGKILL)
    assert left[0] == folder
    assert left[1].startswith(f"{folder}/listener-")


def serve_beside_a_file() -> None:
    start_fork_server()
    Path(util.get_temp_dir(), "of the user").touch()
    say("there")
    time.sleep(1000)


def test_a_folder_with_something_else_in_it_is_left(run: Callable[[Any], Program]) -> None:
    program = run(serve_beside_a_file)
    assert program.answer() == "there"
    left = program.end(signal.SIGKILL)
    assert [name.partition("/")[2] for name in left] == ["", "of the user"]


def serve_in_a_child() -> None:
    """A process that multiprocessing started has the folder of the one that started it; it is killed, the other goes on."""
    start_fork_server()
    child = multiprocessing.get_context("spawn").Process(target=serve_and_be_killed)
    child.start()
    child.join()
    time.sleep(1)  # its server, if it has one, ends
    say(len(list(Path(util.get_temp_dir()).glob(OWNER))))
    asked = multiprocessing.get_context("forkserver").Process(target=time.time)
    asked.start()
    asked.join()
    say(asked.exitcode)


def serve_and_be_killed() -> None:
    start_fork_server()
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_folder_of_a_living_process_is_left(run: Callable[[Any], Program]) -> None:
    program = run(serve_in_a_child)
    assert [program.answer(), program.answer()] == ["1", "0"]
    assert program.end() == []


def tell_what_is_loaded() -> None:
    forkserver.set_forkserver_preload(["json"])
    start_fork_server()
    say(forkserver._forkserver._preload_modules)  # type: ignore[attr-defined]
    ours, theirs = multiprocessing.Pipe()
    asked = multiprocessing.get_context("forkserver").Process(target=send_what_is_loaded, args=(theirs,))
    asked.start()
    say(ours.recv())
    asked.join()


def send_what_is_loaded(told: Any) -> None:
    told.send([name in sys.modules for name in ("json", "numpy", "torch")])


def test_the_server_loads_what_the_user_named_and_no_torch(run: Callable[[Any], Program]) -> None:
    program = run(tell_what_is_loaded)
    assert program.answer() == "['json']"
    assert program.answer() == "[True, False, False]"
    assert program.end() == []


def test_this_process_is_no_server() -> None:
    assert process.current_process().name == "MainProcess"
    assert "forkserver import main" not in " ".join(sys.orig_argv)
