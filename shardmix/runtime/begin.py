"""How a pass begins: for each kind of data set the workers, the feed, and what runs between them.

    shards     a ShardDataset: planned batches (feeds.py), the user's schedule over lanes, or a stream where in_order=False
    map        a map-style dataset: rounds of the sampler's batches (rounds.py), or picked from worker queues (pulled.py)
    iterable   any other iterable: picked from worker queues

Rule: everything that a pass needs is fixed here, in the main process; the mixer's thread then holds no loader.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..order.schedule import Schedule
from .assemble import Assembler
from .damages import SkipBudget
from .dataset import Opened
from .feeds import Delivery, MapFeed, PlannedSteps, Round, ShardFeed, Steps
from .limits import Counts, count_cores, time_mixing
from .link import Link
from .passes import InlineMixer, Mixer, ThreadMixer
from .progress import Start
from .pulled import MapSupply, PulledFeed, StreamSupply, Supply, UserSchedule
from .ranks import World
from .requests import StreamWork
from .rounds import rounds_of_batch_sampler, rounds_of_sampler
from .scheduled import ScheduledSteps
from .shared_rows import BatchSlots
from .source import Answers, MapAnswers, ShardAnswers, StreamAnswers
from .workers import Hosts, Threads

Feed = ShardFeed | MapFeed | PulledFeed
Deliveries = Generator[Delivery, None, None]


@dataclass(frozen=True)
class Run:
    """What a pass of any kind needs; nothing in it leads back to the loader."""

    start: Start
    workers: Hosts
    assembler: Assembler
    counts: Counts
    batch_size: int
    drop_last: bool
    in_order: bool
    schedule: UserSchedule | None
    skips: SkipBudget
    seed: Callable[[int], int]  # epoch → seed of the workers' generators
    slots: BatchSlots | None = None  # where workers write dense rows to

    @property
    def num_workers(self) -> int:
        """Who answers: the workers, or with none of them threads of this process."""
        return self.workers.num_hosts

    def link(self) -> Link:
        """A new talk with the workers."""
        workers = self.workers
        return Link(
            workers.next_generation(),
            workers.num_slabs,
            workers.views,
            self.counts,
            workers_choose=not self.in_order,
            skips=self.skips,
        )


def number_of_workers(wanted: int, lanes: int, world_size: int) -> int:
    """At most one worker for each lane of the rank."""
    most = lanes // world_size
    if wanted > most:
        warnings.warn(
            f"num_workers={wanted}: a rank has {lanes} lanes / {world_size} ranks = {most}; {most} workers are started. "
            f"For more, set lanes={wanted * world_size} (that changes the order)",
            stacklevel=6,
        )
    return min(wanted, most)


def answers_of(dataset: Any, opened: Opened | None, is_map: bool) -> Answers:
    """Who answers for a data set in its workers."""
    if opened is not None:
        return ShardAnswers(dataset, opened)
    return MapAnswers(dataset) if is_map else StreamAnswers(dataset)


def threads_of(dataset: Any, opened: Opened | None, is_map: bool, persistent: bool) -> Threads:
    """Who answers with num_workers=0: as many threads as cores where no user code runs in them, else one."""
    num_threads = 1
    if opened is not None and not dataset.runs_user_code:
        num_threads = min(count_cores(), opened.plan.lanes)
    return Threads(partial(answers_of, dataset, opened, is_map), num_threads, opened=opened, persistent=persistent)


def begin(deliveries: Deliveries, workers: Hosts, *, ahead: bool) -> Mixer:
    """Start mixing: ahead in a thread of its own, or when a batch is asked for."""
    if not ahead:
        return InlineMixer(deliveries, workers.release)
    return ThreadMixer(deliveries, workers.release, workers.hurry)


def deliver_shards(run: Run, world: World, schedule: Schedule) -> Deliveries:
    """Batches of a ShardDataset, all epochs of the pass in one flow."""
    if not run.in_order:
        yield from deliver_pulled(run, lambda epoch: StreamSupply(StreamWork(0, epoch, world.rank, schedule)))
        return

    def epochs() -> Iterator[tuple[int, Steps, int]]:
        # a batch of holes may be filled with the one before it, which a resumed run has not seen
        lead = int(run.assembler.fills_holes and schedule.first_row >= schedule.global_batch)
        for epoch in run.start.epochs():
            if epoch != run.start.epoch:
                lead = 0
            first_row = schedule.first_row - lead * schedule.global_batch if epoch == run.start.epoch else 0
            planned = replace(schedule, first_row=first_row)
            if run.schedule is None:
                yield epoch, PlannedSteps(planned, epoch, world.rank), lead
            else:
                yield epoch, ScheduledSteps(run.schedule, planned, epoch, world.rank, run.num_workers), 0

    link = run.link()
    lanes_a_worker = schedule.lanes // world.world_size // run.num_workers
    feed = ShardFeed(
        link, run.assembler, run.counts, epochs(), run.num_workers, world.world_size, lanes_a_worker, run.slots
    )
    try:
        yield from run_feed(run, link, feed)
    finally:
        run.workers.hold(feed.outstanding())


def deliver_map(
    run: Run, batches: Iterable[list[Any]], is_whole: bool, on_epoch: Callable[[int], None]
) -> Deliveries:
    """Batches of a map-style dataset; `is_whole`: they are of a user's batch_sampler. `on_epoch` is called before
    each epoch is drawn."""
    if run.schedule is not None or not run.in_order:
        yield from deliver_pulled(run, lambda epoch: MapSupply(iter(batches), run.num_workers))
        return
    cut = rounds_of_batch_sampler if is_whole else rounds_of_sampler

    def rounds() -> Iterator[Round]:
        for epoch in run.start.epochs():
            on_epoch(epoch)
            drawn = cut(batches, run.num_workers, epoch, run.start.place.step if epoch == run.start.epoch else 0)
            waiting = next(drawn, None)
            while waiting is not None:
                following = next(drawn, None)
                if following is None:  # some samplers draw once more as they end
                    on_epoch(epoch + 1)
                yield waiting
                waiting = following

    link = run.link()
    yield from run_feed(run, link, MapFeed(link, run.assembler, run.counts, rounds(), run.num_workers))


def deliver_iterable(run: Run) -> Deliveries:
    """Batches of an iterable dataset: nothing is known of it before it ends."""
    return deliver_pulled(run, lambda epoch: StreamSupply(StreamWork(0, epoch)))


def deliver_pulled(run: Run, supply: Callable[[int], Supply]) -> Deliveries:
    """Batches picked from worker queues, one talk with the workers an epoch: how long it is shows only at its end."""
    for epoch in run.start.epochs():
        link = run.link()
        feed = PulledFeed(
            link,
            run.assembler,
            run.counts,
            supply(epoch),
            num_workers=run.num_workers,
            batch_size=run.batch_size,
            drop_last=run.drop_last,
            epoch=epoch,
            schedule=run.schedule,
            in_order=run.in_order,
        )
        yield from run_feed(run, link, feed, epoch)


def run_feed(run: Run, link: Link, feed: Feed, epoch: int | None = None) -> Deliveries:
    """Let the workers answer the feed's requests, and the feed make batches of the answers."""
    seed = run.seed(run.start.epoch if epoch is None else epoch)
    replies = run.workers.answers_to(feed.requests(), seed, link.describe_outstanding)
    link.replies = replies
    try:
        yield from time_mixing(feed.batches(), run.counts)
    finally:
        replies.close()
        link.replies = iter(())
