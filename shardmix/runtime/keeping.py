"""What a loader keeps from pass to pass: its workers where they persist, and its batch memory.

Rule 1: kept workers serve one pass at a time, and only what they were started for; a second live pass gets workers of its own.
Rule 2: nothing here leads back to the loader but its settings, which are read when a pass begins.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .assemble import Assembler
from .begin import answers_of, threads_of
from .dataset import Opened
from .memory import BatchMemory
from .shared_rows import BatchSlots, SlotKeeper
from .workers import Hosts, Workers


class Keeper:
    """Keeps workers and memory for the passes of one loader. `is_map`: its data set is a map-style one."""

    def __init__(self, is_map: bool) -> None:
        self._is_map = is_map
        self.workers: Hosts | None = None  # that serve pass after pass
        self.memory: BatchMemory | None = None
        self.slots = SlotKeeper()

    def take_workers(self, loader: Any, opened: Opened | None, num_workers: int) -> Hosts:
        """Workers for one pass: those that persist, where they are free; else new ones."""
        kept = self.workers
        if kept is not None and not kept.is_own:
            kept = self.workers = None
        if kept is not None and not kept.is_busy and kept.num_workers == num_workers and kept.opened is opened:
            kept.take()
            return kept
        workers = self._make_workers(loader, opened, num_workers, is_first=kept is None or not kept.is_busy)
        workers.take()
        if workers.persistent:
            if kept is not None:
                kept.close()
            self.workers = workers
        return workers

    def _make_workers(self, loader: Any, opened: Opened | None, num_workers: int, is_first: bool) -> Hosts:
        """New workers; none that persist beside others that are at work."""
        if num_workers == 0:
            return threads_of(loader.dataset, opened, self._is_map, persistent=is_first)
        return Workers(
            loader.dataset,
            answers_of(loader.dataset, opened, self._is_map),
            num_workers,
            opened=opened,
            prefetch_factor=loader.prefetch_factor or 2,
            persistent=loader.persistent_workers and is_first,
            in_order=loader.in_order,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            context=loader.multiprocessing_context,
        )

    def make_assembler(self, loader: Any, collate_fn: Any, with_source: bool, fill_holes: bool) -> Assembler:
        """Who puts the batches of a pass together, in the loader's memory."""
        can_pin = loader.pin_memory and torch.accelerator.is_available()
        if loader.pin_memory and not can_pin:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=7,
            )
        if self.memory is None:
            self.memory = BatchMemory(can_pin)
        return Assembler(self.memory, collate_fn, with_source, fill_holes, loader.num_workers > 0)

    def take_slots(self, loader: Any, assembler: Assembler, opened: Opened, num_workers: int) -> BatchSlots | None:
        """Memory that the workers of a pass write dense rows to; None where they cannot know what a batch will be."""
        is_planned = loader.schedule is None and (loader.in_order or num_workers == 0)
        if not (is_planned and assembler.takes_slots) or loader.dataset.runs_user_code:
            return None
        return self.slots.slots(opened.schema, loader.batch_size or 1, num_workers > 0)
