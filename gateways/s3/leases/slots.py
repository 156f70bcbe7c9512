"""Slots: what a process knows of one message, and of the batch it is in.

| phase    | what is known                                 | next                                 |
|----------|-----------------------------------------------|--------------------------------------|
| READY    | may be claimed: no lease, or one that is over | CLAIMING by a pick; HIDDEN when a    |
|          |                                               | listing shows a lease                |
| CLAIMING | this process is writing its lease             | HIDDEN, won or lost; READY           |
| HIDDEN   | not to be had before `due_s`: held (here or   | when due READY, or read first where  |
|          | elsewhere), delayed, or unknown               | another may have changed it; DONE    |
| DONE     | for good                                      |                                      |
"""

from __future__ import annotations

from enum import IntEnum

import attrs

from .codec import BatchContent, BatchId, LeaseObject, MessageId


class SlotPhase(IntEnum):
    """Where a message stands, as far as this process knows."""

    READY = 0
    CLAIMING = 1
    HIDDEN = 2
    DONE = 3


@attrs.define(eq=False)
class Slot:
    """One message of an open batch."""

    id: MessageId
    phase: SlotPhase = SlotPhase.READY
    etag: str | None = None
    """The version of its lease; None when it has none, or that is not known."""
    lease: LeaseObject | None = None
    """What that version says, where known."""
    due_s: float = 0.0
    """When a HIDDEN one is to be looked at, on the store's clock."""
    must_read: bool = False
    """Whether its lease is to be read when due: another process may have changed it."""
    turn: int = 0
    """The catalogue's turn at which it last changed."""
    rank: tuple[int, int] = (0, 0)
    """Its place among what is READY; the least is claimed first."""

    @property
    def is_in_flight(self) -> bool:
        """Whether this process holds it, or is about to."""
        is_held = self.phase is SlotPhase.HIDDEN and self.lease is not None and self.lease.is_held
        return self.phase is SlotPhase.CLAIMING or (is_held and not self.must_read)


@attrs.frozen
class Sighting:
    """A lease in a listing."""

    etag: str
    is_done: bool
    modified_s: float


@attrs.define(eq=False)
class OpenBatch:
    """A batch whose messages are looked after one by one."""

    id: BatchId
    slots: list[Slot] = attrs.field(repr=False)
    content: BatchContent | None = attrs.field(repr=False)
    """None when it had to make room: read again before a claim."""
    written_s: float
    is_charted: bool = True
    """False when others claim here too: their leases are listed before the next claim."""
    left: int = 0
    """How many are not done."""


@attrs.define(eq=False)
class ClosedBatch:
    """A batch that was listed and not read."""

    id: BatchId
    written_s: float
    turn: int
    is_charted: bool = False
    leases: dict[int, Sighting] = attrs.field(factory=dict, repr=False)
    """Its leases by place, where charted."""

    @property
    def is_done(self) -> bool:
        """Whether a listing has shown all of it to be done."""
        return sum(each.is_done for each in self.leases.values()) == self.id.count


@attrs.frozen
class Finished:
    """A batch of which all is done, and of which something is still there."""

    id: BatchId
    written_s: float
    turn: int
