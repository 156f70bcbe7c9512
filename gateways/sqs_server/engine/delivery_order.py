"""Delivery order of a standard queue: which visible message comes next.

Best-effort order: new messages in the order they came, behind those that came back. AWS puts a
message that was received three times and never deleted at the back, so that a poisonous one
does not keep the others waiting; so do we.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

import attrs

from .record import VISIBLE, SqsRecord

_TO_THE_BACK_AFTER = 3
_WORTH_COMPACTING = 64


class SqsOrder(Protocol):
    """The order of one queue. Looks at phases and changes none."""

    def extend(self, records: Sequence[SqsRecord]) -> None:
        """Let new messages join, visible or delayed."""

    def take(self, max_count: int, limit: float) -> tuple[list[SqsRecord], list[SqsRecord]]:
        """Take out visible messages: those to deliver, and apart those that had `limit`
        deliveries already, which do not count towards `max_count`.
        """

    def put_back(self, record: SqsRecord) -> None:
        """Let a message that was taken or withdrawn, and is visible again, join."""

    def surface(self, record: SqsRecord) -> None:
        """Let a message whose delay is over be taken."""

    def withdraw(self, record: SqsRecord) -> None:
        """Take out one message, wherever it stands."""

    def release(self, records: Sequence[SqsRecord]) -> None:
        """Forget messages that were taken or withdrawn."""

    def has_candidates(self) -> bool:
        """Whether `take` could find something; it may still find nothing."""

    def clear(self) -> None:
        """Remove every message."""


class StandardOrder:
    """Two queues in one: those that came back, oldest first, and then the fresh ones.

    Nothing is removed from the middle: a message that is not visible at its turn is skipped.
    """

    def __init__(self) -> None:
        self._fresh: deque[SqsRecord] = deque()
        self._returned: list[tuple[int, int, SqsRecord]] = []
        self._turn = 0
        self._stale = 0

    def has_candidates(self) -> bool:
        return bool(self._fresh or self._returned)

    def extend(self, records: Sequence[SqsRecord]) -> None:
        self._fresh.extend([record for record in records if record.phase == VISIBLE])

    def surface(self, record: SqsRecord) -> None:
        self._fresh.append(record)

    def put_back(self, record: SqsRecord) -> None:
        if record.receive_count >= _TO_THE_BACK_AFTER:
            self._fresh.append(record)
        else:
            # The same message may stand here twice, from before it was withdrawn.
            self._turn += 1
            heappush(self._returned, (record.seq, self._turn, record))

    def take(self, max_count: int, limit: float) -> tuple[list[SqsRecord], list[SqsRecord]]:
        fresh, returned = self._fresh, self._returned
        # By number: the phase changes only after the take, and a message may stand here twice.
        taken: dict[int, SqsRecord] = {}
        dead: dict[int, SqsRecord] = {}
        while len(taken) < max_count and (returned or fresh):
            record = heappop(returned)[2] if returned else fresh.popleft()
            if record.phase == VISIBLE:
                (taken if record.receive_count < limit else dead)[record.seq] = record
        return list(taken.values()), list(dead.values())

    def withdraw(self, record: SqsRecord) -> None:
        self._stale += 1
        if self._stale > _WORTH_COMPACTING and self._stale * 2 > len(self._fresh):
            self._fresh = deque(r for r in self._fresh if r.phase == VISIBLE)
            self._returned = [each for each in self._returned if each[2].phase == VISIBLE]
            heapify(self._returned)
            self._stale = 0

    def release(self, records: Sequence[SqsRecord]) -> None:
        """Nothing is kept of messages that were taken."""

    def clear(self) -> None:
        self._fresh.clear()
        self._returned.clear()
        self._stale = 0


# Delivery order of a FIFO queue: message groups that take turns, strict order within each.
#
# A message may be delivered when no earlier one of its group is hidden, except by the same
# receive. So a group rests while a delivered message is neither deleted nor visible again, and
# goes on with the earliest that came back. A receive empties one group before it goes to the
# next, and a group that was received from queues up behind the others: as AWS does.


@attrs.define(eq=False, weakref_slot=False)
class Group:
    """One chain of messages. Lists, for a queue may have a million groups of one message."""

    key: str
    _waiting: list[SqsRecord] = attrs.field(factory=list, repr=False)
    """Visible or delayed, in order, from `_head` on."""
    _head: int = 0
    held: list[int] = attrs.field(factory=list)
    """Numbers of those in flight or in limbo: hardly more than one receive takes."""
    is_queued: bool = False
    """Whether it is among the groups that wait for their turn."""

    @property
    def first(self) -> SqsRecord | None:
        """The earliest that is not held."""
        return self._waiting[self._head] if self._head < len(self._waiting) else None

    def is_deliverable(self) -> bool:
        """Whether its earliest message may be delivered."""
        first = self.first
        if first is None or first.phase != VISIBLE:
            return False
        return not self.held or first.seq < min(self.held)

    def append(self, record: SqsRecord) -> None:
        """Add a message that is new."""
        self._waiting.append(record)

    def hold_first(self) -> None:
        """Hold the earliest."""
        waiting = self._waiting
        self.held.append(waiting[self._head].seq)
        self._head += 1
        # Those in front of the head are kept alive for nothing.
        if self._head * 8 >= len(waiting):
            del waiting[: self._head]
            self._head = 0

    def hold(self, record: SqsRecord) -> None:
        """Hold one from the middle."""
        del self._waiting[self._waiting.index(record, self._head)]
        self.held.append(record.seq)

    def let_go(self, record: SqsRecord) -> None:
        """Hold it no longer; it is gone, or about to be put back."""
        if record.seq in self.held:
            self.held.remove(record.seq)

    def put_back(self, record: SqsRecord) -> None:
        """Put a message in its place again, which is near the front."""
        waiting, position = self._waiting, self._head
        while position < len(waiting) and waiting[position].seq < record.seq:
            position += 1
        if position == self._head > 0:
            self._head -= 1
            waiting[self._head] = record
        else:
            waiting.insert(position, record)


class FifoOrder:
    """The groups of one queue, in the order in which they will be asked."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._ready: deque[Group] = deque()

    def has_candidates(self) -> bool:
        return bool(self._ready)

    def extend(self, records: Sequence[SqsRecord]) -> None:
        for record in records:
            self._append(record)

    def _append(self, record: SqsRecord) -> None:
        key = record.group or ""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        # One copy of the key for all messages of the group.
        record.group = group.key
        record.lane = group
        group.append(record)
        self._offer(group)

    def take(self, max_count: int, limit: float) -> tuple[list[SqsRecord], list[SqsRecord]]:
        taken: list[SqsRecord] = []
        dead: list[SqsRecord] = []
        while self._ready and len(taken) < max_count:
            group = self._ready.popleft()
            group.is_queued = False
            if group.is_deliverable():
                _take_from(group, max_count, limit, taken, dead)
        return taken, dead

    def put_back(self, record: SqsRecord) -> None:
        group = record.lane
        assert group is not None
        group.let_go(record)
        group.put_back(record)
        self._offer(group)

    def surface(self, record: SqsRecord) -> None:
        assert record.lane is not None
        self._offer(record.lane)

    def withdraw(self, record: SqsRecord) -> None:
        group = record.lane
        assert group is not None
        group.hold(record)

    def release(self, records: Sequence[SqsRecord]) -> None:
        for record in records:
            group = record.lane
            assert group is not None
            group.let_go(record)
            if group.first is not None:
                self._offer(group)
            elif not group.held:
                self._groups.pop(group.key, None)

    def clear(self) -> None:
        self._groups.clear()
        self._ready.clear()

    def _offer(self, group: Group) -> None:
        if not group.is_queued and group.is_deliverable():
            group.is_queued = True
            self._ready.append(group)


def _take_from(
    group: Group, max_count: int, limit: float, taken: list[SqsRecord], dead: list[SqsRecord]
) -> None:
    barrier = min(group.held, default=inf)
    while len(taken) < max_count:
        record = group.first
        if record is None or record.phase != VISIBLE or record.seq > barrier:
            return
        group.hold_first()
        if record.receive_count >= limit:
            # Those behind it wait until it is safely gone.
            dead.append(record)
            return
        taken.append(record)
