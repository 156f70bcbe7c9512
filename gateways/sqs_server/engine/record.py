"""Records: one message as its queue holds it, and the holds that hide it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from .fifo_line import Group


class Phase(IntEnum):
    """Where in its life a message is.

    VISIBLE → IN_FLIGHT by a receive, and back by expiry or a visibility of zero. DELAYED →
    VISIBLE by time. Any of them → LIMBO while its removal (a delete, its retention's end, a
    redrive, a move) is being written; LIMBO → GONE when that is done, or back when it failed.
    """

    VISIBLE = 0
    DELAYED = 1
    IN_FLIGHT = 2
    LIMBO = 3
    GONE = 4


# Plain ints: an enum member costs a dictionary look-up for each use in the hot path.
VISIBLE = int(Phase.VISIBLE)
DELAYED = int(Phase.DELAYED)
IN_FLIGHT = int(Phase.IN_FLIGHT)
LIMBO = int(Phase.LIMBO)
GONE = int(Phase.GONE)


@attrs.define(eq=False, weakref_slot=False)
class Record:
    """One message in a queue. Positional and slotted: a million of these fit in memory."""

    seq: int
    """Its place: unique in the file, growing with each send and each move."""
    origin: int
    """The number its message id is made of: `seq`, or what that was before a redrive."""
    body: str = attrs.field(repr=False)
    extra: bytes | None = attrs.field(repr=False)
    """The rest, packed by `codec`: unpacked only for who receives it."""
    group: str | None
    source: str | None
    """ARN of the queue whose redrive policy moved it here."""
    sent_at_s: float
    """Unix time."""
    phase: int = VISIBLE
    receive_count: int = 0
    first_at_s: float = 0.0
    """When it was first received, in Unix time; zero for never."""
    hold: Hold | None = attrs.field(default=None, repr=False)
    """What hides it, None when nothing does."""
    lane: Group | None = attrs.field(default=None, repr=False)
    """Its message group in a FIFO queue."""


@attrs.define(eq=False, weakref_slot=False)
class Hold:
    """What hides messages until a moment: one receive, one change of visibility, one delay.

    Messages are held together because they are hidden together: the cost of an expiry is
    shared by all. A message that has another hold by now is no longer under this one.
    """

    due_s: float
    records: list[Record] = attrs.field(repr=False)
    taken_s: float = 0.0
    """When they were received, for the limit on how long that may last; zero for a delay."""
    left: int = 0
    """How many are still under it."""
    holder: str | None = ""
    """Who has them in flight: a client with receipts of this process (empty) or of an earlier
    one (its name), or None for a receiver inside this process, which does not outlive it."""

    def release(self) -> bool:
        """Count one as no longer under it; True when that was the last."""
        self.left -= 1
        if self.left:
            return False
        # A stale hold waits for its time to be over, and must not keep messages alive till then.
        self.records = []
        return True
