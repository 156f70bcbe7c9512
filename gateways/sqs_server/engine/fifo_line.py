"""The line of a FIFO queue: message groups that take turns, strict order within each.

A message may be delivered when no earlier one of its group is hidden, except by the same
receive. So a group rests while a delivered message is neither deleted nor visible again, and
goes on with the earliest that came back. A receive empties one group before it goes to the
next, and a group that was received from queues up behind the others: as AWS does.
"""

from __future__ import annotations

from collections import deque
from math import inf

import attrs

from .record import VISIBLE, Record


@attrs.define(eq=False, weakref_slot=False)
class Group:
    """One chain of messages. Lists, for a queue may have a million groups of one message."""

    key: str
    _waiting: list[Record] = attrs.field(factory=list, repr=False)
    """Visible or delayed, in order, from `_head` on."""
    _head: int = 0
    held: list[int] = attrs.field(factory=list)
    """Numbers of those in flight or in limbo: hardly more than one receive takes."""
    is_queued: bool = False
    """Whether it stands in the line of groups."""

    @property
    def first(self) -> Record | None:
        """The earliest that is not held."""
        return self._waiting[self._head] if self._head < len(self._waiting) else None

    def is_deliverable(self) -> bool:
        """Whether its earliest message may be delivered."""
        first = self.first
        if first is None or first.phase != VISIBLE:
            return False
        return not self.held or first.seq < min(self.held)

    def append(self, record: Record) -> None:
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

    def hold(self, record: Record) -> None:
        """Hold one from the middle."""
        del self._waiting[self._waiting.index(record, self._head)]
        self.held.append(record.seq)

    def let_go(self, record: Record) -> None:
        """Hold it no longer; it is gone, or about to be put back."""
        if record.seq in self.held:
            self.held.remove(record.seq)

    def put_back(self, record: Record) -> None:
        """Put a message in its place again, which is near the front."""
        waiting, position = self._waiting, self._head
        while position < len(waiting) and waiting[position].seq < record.seq:
            position += 1
        if position == self._head > 0:
            self._head -= 1
            waiting[self._head] = record
        else:
            waiting.insert(position, record)


class FifoLine:
    """The groups of one queue, in the order in which they will be asked."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._ready: deque[Group] = deque()

    def has_candidates(self) -> bool:
        return bool(self._ready)

    def append(self, record: Record) -> None:
        key = record.group or ""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        # One copy of the key for all messages of the group.
        record.group = group.key
        record.lane = group
        group.append(record)
        self._offer(group)

    def take(self, max_count: int, limit: float) -> tuple[list[Record], list[Record]]:
        taken: list[Record] = []
        dead: list[Record] = []
        while self._ready and len(taken) < max_count:
            group = self._ready.popleft()
            group.is_queued = False
            if group.is_deliverable():
                _take_from(group, max_count, limit, taken, dead)
        return taken, dead

    def put_back(self, record: Record) -> None:
        group = record.lane
        assert group is not None
        group.let_go(record)
        group.put_back(record)
        self._offer(group)

    def surface(self, record: Record) -> None:
        assert record.lane is not None
        self._offer(record.lane)

    def withdraw(self, record: Record) -> None:
        group = record.lane
        assert group is not None
        group.hold(record)

    def release(self, record: Record) -> None:
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
    group: Group, max_count: int, limit: float, taken: list[Record], dead: list[Record]
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
