"""Records: one message as its queue holds it, and the lease batches it is handed out in."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import attrs

from pump.message import Message

if TYPE_CHECKING:
    from .domain import Domain
    from .session_lock import SessionLock


class Phase(IntEnum):
    """Where in its life a message is.

    READY → LEASED by a receive. LEASED → LIMBO when a settlement is being written; LIMBO → gone
    (ack, or moved to the dead-letter queue), → READY or DELAYED (defer, abandon), or back →
    LEASED when the write failed. LEASED → READY or LIMBO (redrive) by expiry. DELAYED → READY
    by time.
    """

    READY = 0
    DELAYED = 1
    LEASED = 2
    LIMBO = 3


# Plain ints: an enum member costs a dictionary look-up for each use in the hot path.
READY = int(Phase.READY)
DELAYED = int(Phase.DELAYED)
LEASED = int(Phase.LEASED)
LIMBO = int(Phase.LIMBO)


@attrs.define(eq=False)
class Record:
    """One message in a queue. Positional and slotted: a million of these are made a second."""

    seq: int
    """Its place: unique in the broker, growing with each send, kept through every return."""
    message: Message = attrs.field(repr=False)
    sent_at_s: float
    domain: Domain | None = attrs.field(default=None, repr=False)
    """The ordering domain it belongs to, None when nothing orders it."""
    attempt: int = 0
    phase: int = READY
    due_s: float = 0.0
    """When a DELAYED one becomes READY."""
    receipt: str = attrs.field(default="", repr=False)
    batch: LeaseBatch | None = attrs.field(default=None, repr=False)
    is_offered: bool = False
    """Whether it stands in the heap of candidates."""


@attrs.define(eq=False)
class LeaseBatch:
    """What one receive handed out: one owner, one expiry, however many messages.

    Leases are kept by batch because they are granted and mostly extended by batch: the cost of
    an expiry, in memory and on disk, is shared by all members.
    """

    id: str
    owner: str
    expires_s: float
    request: int | None = None
    """The number of the remote request that asked for it, to answer it once more."""
    members: dict[int, Record] = attrs.field(factory=dict, repr=False)
    """What is still leased, by sequence number."""
    lock: SessionLock | None = attrs.field(default=None, repr=False)
    """The session that received it, if one did."""
