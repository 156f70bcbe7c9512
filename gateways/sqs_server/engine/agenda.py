"""The agenda: which holds end by the mere passing of time, soonest first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from .record import Hold

# Below this many stale entries rebuilding the heap costs more than it frees.
_WORTH_COMPACTING = 64


class Agenda:
    """Holds by the time they end.

    A hold nobody is under is stale: skipped, and swept once stale ones are the majority, so
    that a million deleted messages leave nothing behind.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hold]] = []
        self._tie = count()
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, hold: Hold) -> None:
        """Let a hold end when it is due."""
        heappush(self._heap, (hold.due_s, next(self._tie), hold))

    def note_stale(self) -> None:
        """Count one hold as stale, and sweep when most are."""
        self._stale += 1
        if self._stale > _WORTH_COMPACTING and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].left]
            heapify(self._heap)
            self._stale = 0

    def may_be_due(self, now_s: float) -> bool:
        """Whether a hold, if only a stale one, is due: cheap enough to ask every time."""
        return bool(self._heap) and self._heap[0][0] <= now_s

    def next_due_s(self) -> float:
        """When the next hold ends; infinity for never."""
        heap = self._heap
        while heap and not heap[0][2].left:
            heappop(heap)
            self._stale = max(0, self._stale - 1)
        return heap[0][0] if heap else inf

    def pop_due(self, now_s: float) -> Iterator[Hold]:
        """Take the holds that are due, in the order they fell due."""
        while self.next_due_s() <= now_s:
            yield heappop(self._heap)[2]

    def receives(self) -> Iterator[Hold]:
        """The holds of receives that somebody is under, in no order."""
        return (hold for _, _, hold in self._heap if hold.left and hold.taken_s)

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._stale = 0
