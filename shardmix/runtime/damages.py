"""Damaged records that are skipped: how many of them, and what is said of them.

Rule 1: a damage is logged once, however many epochs, passes or loaders meet it. A break of a compressed stream loses all records
behind it: that is one damage, told with the first of them.
Rule 2: every record that is skipped counts against the budget of its pass, max_corrupt; so does one that was logged before.
"""

from __future__ import annotations

import logging

from ..errors import CorruptShardError, describe_place

logger = logging.getLogger("shardmix")


class DamageLog:
    """What was logged of one data set, in this process."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, damage: CorruptShardError) -> None:
        """Log a damage, unless it was."""
        text = str(damage).removeprefix(describe_place(damage.path, damage.record, damage.offset))
        if (damage.path, text) not in self._told:
            self._told.add((damage.path, text))
            logger.warning("skipped: %s", damage)


class SkipBudget:
    """The damaged records of one pass. raises: none is skipped; else max_corrupt of them may be, None is any number."""

    def __init__(self, log: DamageLog, max_corrupt: int | None = None, *, raises: bool = False) -> None:
        self._log, self._max_corrupt, self._raises = log, max_corrupt, raises
        self._num_skipped = 0

    def skip(self, damage: CorruptShardError) -> None:
        """Skip one record. Raises its damage when it is not to be skipped, or there is too much of it."""
        if self._raises:
            raise damage
        self._num_skipped += 1
        if self._max_corrupt is not None and self._num_skipped > self._max_corrupt:
            number, limit = self._num_skipped, self._max_corrupt
            damage.add_note(f"shardmix: this is skipped record number {number} of the pass, max_corrupt={limit}")
            raise damage
        self._log.tell(damage)
