"""Steps: what the state machine decided, for the shell to write down and finish."""

from __future__ import annotations

from enum import Enum

import attrs

from .record import Hold, Record


class ReceiptProblem(Enum):
    """Why a receipt did not do what was asked."""

    MALFORMED = "malformed"
    """We never gave it out."""
    OTHER_QUEUE = "other queue"
    """It is a receipt, and of another queue."""
    EXPIRED = "expired"
    """FIFO: its message is visible again, or was received again."""
    NOT_IN_FLIGHT = "not in flight"
    """Standard: its message cannot have been received."""
    GONE = "gone"
    """Its message was deleted or has expired. SQS answers a delete of it with success."""
    BEYOND_LIMIT = "beyond limit"
    """The message would be in flight for more than twelve hours."""


@attrs.define
class Arrival:
    """Messages about to be stored, without duplicates."""

    records: list[Record] = attrs.field(factory=list)
    numbers: list[int] = attrs.field(factory=list)
    """For each message that was given its number, or that of its original."""
    keys: list[tuple[str, int]] = attrs.field(factory=list)
    """De-duplication keys that were remembered, with the number of their message."""
    forgotten: list[str] = attrs.field(factory=list)
    """De-duplication keys whose time is over."""
    keys_until_s: float = 0.0
    """How long they are remembered."""
    delays: list[Hold] = attrs.field(factory=list)
    """All holds, one for each delay."""


@attrs.define(eq=False)
class Taken:
    """What one receive takes."""

    records: list[Record]
    receive_counts: list[int]
    """Of each message, with this receive: it may be received again before the answer leaves."""
    hold: Hold
    is_repeated: bool = False
    """Whether it was handed out before under the same attempt id."""


@attrs.define
class Deletion:
    """Receipts that were looked at, and the messages to delete."""

    records: list[Record] = attrs.field(factory=list)
    problems: list[ReceiptProblem | None] = attrs.field(factory=list)
