"""The agenda: what will happen to a queue by the mere passing of time, soonest first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from .record import DELAYED, LeaseBatch, Record
from .session_lock import SessionLock

_Subject = Record | LeaseBatch | SessionLock
_Entry = tuple[float, int, _Subject]

# Below this many stale entries rebuilding the heap costs more than it frees.
_WORTH_COMPACTING = 64


class Agenda:
    """Delayed messages, lease batches and session locks by the time they fall due.

    Entries are never moved: an extension adds another, and an entry whose subject has changed
    is stale. Stale ones are skipped, and swept once they are the majority, so that a million
    settled messages leave nothing behind.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._tie = count()
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_s: float, subject: _Subject) -> None:
        """Let `subject` fall due then."""
        heappush(self._heap, (due_s, next(self._tie), subject))

    def note_stale(self) -> None:
        """Count one entry as stale, and sweep when most are."""
        self._stale += 1
        if self._stale > _WORTH_COMPACTING and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if _is_live(entry)]
            heapify(self._heap)
            self._stale = 0

    def may_be_due(self, now_s: float) -> bool:
        """Whether something, if only a stale entry, is due: cheap enough to ask every time."""
        return bool(self._heap) and self._heap[0][0] <= now_s

    def next_due_s(self) -> float:
        """When the next thing happens; infinity for never."""
        heap = self._heap
        while heap and not _is_live(heap[0]):
            heappop(heap)
            self._stale = max(0, self._stale - 1)
        return heap[0][0] if heap else inf

    def pop_due(self, now_s: float) -> Iterator[_Subject]:
        """Take what is due, in the order it fell due."""
        while self.next_due_s() <= now_s:
            yield heappop(self._heap)[2]

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._stale = 0


def _is_live(entry: _Entry) -> bool:
    due_s, _, subject = entry
    if isinstance(subject, Record):
        return subject.phase == DELAYED and subject.due_s == due_s
    is_live = subject.is_held if isinstance(subject, SessionLock) else bool(subject.members)
    return is_live and subject.expires_s == due_s
