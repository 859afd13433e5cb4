"""A pass: the mixer's thread stays a little ahead, and ends however the pass ends."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from shardmix import FixedLenFeature, MixLoader, ShardDataset
from shardmix.order.schedule import BatchRows
from shardmix.runtime.feeds import Delivery
from shardmix.runtime.limits import Counts, UserClock
from shardmix.runtime.link import PassGivenUp
from shardmix.runtime.passes import AHEAD, InlineMixer, MixIterator, ThreadMixer
from shardmix.runtime.rows import RowSource

pytestmark = pytest.mark.usefixtures("nothing_left")


class Log:
    """What was done, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.made = 0

    def note(self, text: str) -> Callable[[], None]:
        return lambda: self.did.append(text)

    def deliveries(self, count: int, error: BaseException | None = None) -> Generator[Delivery, None, None]:
        try:
            for number in range(count):
                self.made += 1
                yield Delivery(number, 0, number)
            if error is not None:
                raise error
        finally:
            self.did.append("closed")


def start(log: Log, count: int, error: BaseException | None = None) -> ThreadMixer:
    return ThreadMixer(log.deliveries(count, error), log.note("released"), log.note("hurried"))


def wait_until(condition: Callable[[], bool]) -> bool:
    patience = time.monotonic() + 5
    while not condition() and time.monotonic() < patience:
        time.sleep(0.001)
    return condition()


def received(mixer: Any) -> list[int]:
    numbers = []
    while (delivery := mixer.get()) is not None:
        numbers.append(delivery.batch)
    return numbers


@pytest.mark.parametrize("count", [0, 1, 2, 10])
def test_all_deliveries_come_in_order_and_then_the_end(count: int) -> None:
    log = Log()
    mixer = start(log, count)
    assert received(mixer) == list(range(count))
    mixer.close()
    assert log.did == ["closed", "released"]  # nobody is hurried at the end


def test_the_thread_stays_a_few_batches_ahead() -> None:
    log = Log()
    mixer = start(log, 100)
    assert wait_until(lambda: log.made == AHEAD)
    mixer.get()
    assert wait_until(lambda: log.made == AHEAD + 1)
    assert log.made == AHEAD + 1
    mixer.close()
    assert log.made <= AHEAD + 2


def test_closing_hurries_the_workers_then_releases_them_once() -> None:
    log = Log()
    mixer = start(log, 100)
    mixer.get()
    mixer.close()
    mixer.close()
    assert log.did[0] == "hurried"
    assert log.did[-2:] == ["closed", "released"]
    assert log.did.count("released") == 1


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_an_error_comes_after_the_batches_before_it(error: BaseException) -> None:
    log = Log()
    mixer = start(log, 3, error)
    assert [mixer.get().batch for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]
    with pytest.raises(type(error)) as caught:
        mixer.get()
    assert caught.value is error
    mixer.close()
    assert log.did == ["closed", "released"]


def test_a_pass_that_is_given_up_while_answers_are_on_their_way_just_ends() -> None:
    hurried = threading.Event()

    def deliveries() -> Generator[Delivery, None, None]:
        yield Delivery(0, 0, 0)
        hurried.wait()
        raise PassGivenUp

    mixer = ThreadMixer(deliveries(), lambda: None, hurried.set)
    assert mixer.get() is not None
    mixer.close()
    assert mixer.get() is None


def test_a_pass_that_somebody_else_gave_up_is_no_end_of_data() -> None:
    mixer = start(Log(), 1, PassGivenUp())
    with pytest.raises(RuntimeError, match="not by this loader"):
        received(mixer)
    mixer.close()


def test_an_error_while_releasing_is_told() -> None:
    def fail() -> None:
        raise OSError("cannot release")

    mixer = ThreadMixer(Log().deliveries(1), fail, lambda: None)
    assert mixer.get() is not None
    with pytest.raises(OSError, match="cannot release"):
        mixer.get()
    mixer.close()


def test_closing_from_another_thread_ends_the_wait() -> None:
    gate = threading.Event()

    def slow() -> Generator[Delivery, None, None]:
        gate.wait()
        yield from ()

    mixer = ThreadMixer(slow(), lambda: None, gate.set)
    threading.Timer(0.05, mixer.close).start()
    assert mixer.get() is None


def test_without_a_thread_a_batch_is_made_when_it_is_asked_for() -> None:
    log = Log()
    mixer = InlineMixer(log.deliveries(5), log.note("released"))
    assert log.made == 0
    mixer.get()
    assert log.made == 1
    mixer.close()
    mixer.close()
    assert log.did == ["closed", "released"]


def test_garbage_that_a_reader_of_the_pass_collects_ends_the_pass(
    make_corpus: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mixer waits for its readers as it ends, so a reader must not wait for the mixer."""
    is_dropped, fill = threading.Event(), RowSource.fill

    def fill_and_collect(source: RowSource, epoch: int, rows: BatchRows, *rest: Any) -> Any:
        if len(rows.row) and rows.row[0] >= 4:  # beyond the first batch, for which the test waits
            is_dropped.wait()
            gc.collect()
        return fill(source, epoch, rows, *rest)

    monkeypatch.setattr(RowSource, "fill", fill_and_collect)
    dataset = ShardDataset(make_corpus([50, 50]), features={"id": FixedLenFeature((), "int64")})
    cycle: list[Any] = [iter(MixLoader(dataset, batch_size=4))]
    next(cycle[0])
    cycle.append(cycle)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        del cycle
        is_dropped.set()
        assert wait_until(lambda: not any(thread.name.startswith("shardmix-") for thread in threading.enumerate()))
    finally:
        if was_enabled:
            gc.enable()


def test_closing_in_a_daemon_waits_for_the_pass() -> None:
    log = Log()
    iterator = MixIterator(lambda: start(log, 10), lambda _: None, lambda: 10, UserClock(Counts()))
    next(iterator)
    daemon = threading.Thread(target=iterator.close, daemon=True)
    daemon.start()
    daemon.join()
    assert log.did == ["hurried", "closed", "released"]
