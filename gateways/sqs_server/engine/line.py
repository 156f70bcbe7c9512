"""The line of a standard queue: which visible message comes next.

Best-effort order: new messages in the order they came, behind those that came back. AWS puts a
message that was received three times and never deleted at the back, so that a poisonous one
does not keep the others waiting; so do we.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Protocol

from .record import VISIBLE, Record

_TO_THE_BACK_AFTER = 3
_WORTH_COMPACTING = 64


class Line(Protocol):
    """The order of one queue. Looks at phases and changes none."""

    def append(self, record: Record) -> None:
        """Let a new message join, visible or delayed."""

    def take(self, max_count: int, limit: float) -> tuple[list[Record], list[Record]]:
        """Take out visible messages: those to deliver, and apart those that had `limit`
        deliveries already, which do not count towards `max_count`.
        """

    def put_back(self, record: Record) -> None:
        """Let a message that was taken or withdrawn, and is visible again, join."""

    def surface(self, record: Record) -> None:
        """Let a message whose delay is over be taken."""

    def withdraw(self, record: Record) -> None:
        """Take out one message, wherever it stands."""

    def release(self, record: Record) -> None:
        """Forget a message that was taken or withdrawn."""

    def has_candidates(self) -> bool:
        """Whether `take` could find something; it may still find nothing."""

    def clear(self) -> None:
        """Forget everybody."""


class StandardLine:
    """Two queues in one: those that came back, oldest first, and then the fresh ones.

    Nobody is removed from the middle: who is not visible when the turn comes has left.
    """

    def __init__(self) -> None:
        self._fresh: deque[Record] = deque()
        self._returned: list[tuple[int, int, Record]] = []
        self._turn = 0
        self._stale = 0

    def has_candidates(self) -> bool:
        return bool(self._fresh or self._returned)

    def append(self, record: Record) -> None:
        if record.phase == VISIBLE:
            self._fresh.append(record)

    def surface(self, record: Record) -> None:
        self._fresh.append(record)

    def put_back(self, record: Record) -> None:
        if record.receive_count >= _TO_THE_BACK_AFTER:
            self._fresh.append(record)
        else:
            # The same message may stand here twice, from before it was withdrawn.
            self._turn += 1
            heappush(self._returned, (record.seq, self._turn, record))

    def take(self, max_count: int, limit: float) -> tuple[list[Record], list[Record]]:
        fresh, returned = self._fresh, self._returned
        # By number: the phase changes only after the take, and somebody may stand here twice.
        taken: dict[int, Record] = {}
        dead: dict[int, Record] = {}
        while len(taken) < max_count and (returned or fresh):
            record = heappop(returned)[2] if returned else fresh.popleft()
            if record.phase == VISIBLE:
                (taken if record.receive_count < limit else dead)[record.seq] = record
        return list(taken.values()), list(dead.values())

    def withdraw(self, record: Record) -> None:
        self._stale += 1
        if self._stale > _WORTH_COMPACTING and self._stale * 2 > len(self._fresh):
            self._fresh = deque(r for r in self._fresh if r.phase == VISIBLE)
            self._returned = [each for each in self._returned if each[2].phase == VISIBLE]
            heapify(self._returned)
            self._stale = 0

    def release(self, record: Record) -> None:
        """Nothing is kept of those who left."""

    def clear(self) -> None:
        self._fresh.clear()
        self._returned.clear()
        self._stale = 0
