"""Numbers: of queues, messages and tasks, each given once in the life of a file."""

from __future__ import annotations

from collections.abc import Callable

from ..._sqlite.group_commit import Done
from .entries import Entry, Reserved

# Numbers are reserved on disk by blocks: none is given twice, whatever a crash forgets.
_BLOCK = 100_000


class Numbers:
    """Counts, and keeps on disk a number that the count stays below."""

    def __init__(self, write: Callable[[Entry, Done], object]) -> None:
        self._write = write
        self.settled = 0
        """A number that all messages which are being written lie above: entries are written in
        the order in which their numbers were taken, so any that is done with will do.
        """
        self._next = 1
        self._reserved_below = 1

    def continue_from(self, number: int) -> None:
        """Give out no number below this one."""
        self._next = self._reserved_below = number
        self.settled = number - 1

    @property
    def next(self) -> int:
        """The number that is given out next."""
        return self._next

    def take(self, count: int) -> int:
        """The first of so many numbers in a row."""
        first = self._next
        self._next += count
        if self._next > self._reserved_below:
            # Written before whatever uses the numbers, and when it fails so does that.
            self._reserved_below = self._next + _BLOCK
            self._write(Reserved(self._reserved_below), self._finish)
        return first

    def _finish(self, error: Exception | None) -> None:
        if error is not None:
            self._reserved_below = 0
