"""Counting: receive counts that need not be durable at once, written soon and together.

Where no redrive policy looks at them, the counts are only told, so a receive does not wait for
the disk. A message that is deleted within the moment leaves nothing to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pump.clock import Clock, Timer

from .record import GONE, Record

# How much of its counting a crash may cost.
_LINGER_S = 0.1


class LazyCounts:
    """Messages whose count on disk is behind."""

    def __init__(self, clock: Clock, write: Callable[[Sequence[Record]], None]) -> None:
        self._clock = clock
        self._write = write
        self._behind: list[Sequence[Record]] = []
        self._timer: Timer | None = None

    def note(self, records: Sequence[Record]) -> None:
        """Have the counts written soon."""
        self._behind.append(records)
        if self._timer is None:
            self._timer = self._clock.call_later(_LINGER_S, self.write_now)

    def write_now(self) -> None:
        """Hand over what is still there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        behind, self._behind = self._behind, []
        left = {r.seq: r for records in behind for r in records if r.phase != GONE}
        if left:
            self._write(list(left.values()))
