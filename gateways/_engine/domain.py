"""Ordering domains: the messages that must follow one another.

A domain is a message group; in a strict queue, the ungrouped messages form one as well. Only
the head of an idle domain is a candidate for delivery. The head is whichever member comes next
in the queue's order, hidden or not: a delayed or retried head blocks its domain.
"""

from __future__ import annotations

from heapq import heappop, heappush

import attrs

from .record import READY, LeaseBatch, Record


@attrs.define(eq=False)
class Domain:
    """One chain of messages: those waiting, in order, and how many are in flight."""

    key: str | None = None
    waiting: list[tuple[int, Record]] = attrs.field(factory=list, repr=False)
    in_flight: int = 0
    batch: LeaseBatch | None = attrs.field(default=None, repr=False)
    """The receive that took the last one; it alone may take more while some are in flight."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing refers to it any more."""
        return not self.waiting and not self.in_flight

    def candidate(self) -> tuple[int, Record] | None:
        """The head with its rank, when it may be delivered now and is not offered yet."""
        if self.in_flight or not self.waiting:
            return None
        head = self.waiting[0]
        return head if head[1].phase == READY and not head[1].is_offered else None

    def is_free_for(self, record: Record) -> bool:
        """Whether `record` is the head, ready, and nothing of the domain is in flight."""
        return not self.in_flight and self.has_ready() and self.waiting[0][1] is record

    def is_deliverable(self, record: Record, batch: LeaseBatch, *, is_strict: bool) -> bool:
        """Whether `record` is the head and this receive may take it."""
        if not self.waiting or self.waiting[0][1] is not record or record.phase != READY:
            return False
        return not self.in_flight or (self.batch is batch and not is_strict)

    def take_head(self, batch: LeaseBatch) -> None:
        """Count the head as in flight for `batch`."""
        heappop(self.waiting)
        self.in_flight += 1
        self.batch = batch

    def has_ready(self) -> bool:
        """Whether the head is ready."""
        return bool(self.waiting) and self.waiting[0][1].phase == READY

    def take_ready(self, max_count: int) -> list[Record]:
        """Count those that come next as in flight, up to one that is not ready: for whoever has
        the domain locked.
        """
        taken: list[Record] = []
        while len(taken) < max_count and self.has_ready():
            taken.append(heappop(self.waiting)[1])
        self.in_flight += len(taken)
        return taken

    def put(self, rank: int, record: Record) -> None:
        """Put a new or a returned record in its place."""
        heappush(self.waiting, (rank, record))

    def release(self) -> None:
        """Count one as no longer in flight."""
        self.in_flight -= 1
        if not self.in_flight:
            self.batch = None
