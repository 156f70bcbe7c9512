"""Records: one message as its queue holds it, and the holds that hide it."""

from __future__ import annotations

import secrets
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Self
from uuid import UUID

import attrs

from ..model import QueueId

if TYPE_CHECKING:
    from .delivery_order import Group


class RecordPhase(IntEnum):
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
VISIBLE = int(RecordPhase.VISIBLE)
DELAYED = int(RecordPhase.DELAYED)
IN_FLIGHT = int(RecordPhase.IN_FLIGHT)
LIMBO = int(RecordPhase.LIMBO)
GONE = int(RecordPhase.GONE)


@attrs.define(eq=False, weakref_slot=False)
class SqsRecord:
    """One message in a queue. Positional and slotted: a million of these fit in memory."""

    seq: int
    """Its place: unique in the file, growing with each send and each move."""
    origin: int
    """The number its message id is made of: `seq`, or what that was before a redrive."""
    body: str = attrs.field(repr=False)
    extra: bytes | None = attrs.field(repr=False)
    """The rest, packed by `codec`: unpacked only for its receiver."""
    group: str | None
    source: str | None
    """ARN of the queue whose redrive policy moved it here."""
    sent_at_s: float
    """Unix time."""
    phase: int = VISIBLE
    receive_count: int = 0
    first_at_s: float = 0.0
    """When it was first received, in Unix time; zero for never."""
    hold: TimedHold | None = attrs.field(default=None, repr=False)
    """What hides it, None when nothing does."""
    lane: Group | None = attrs.field(default=None, repr=False)
    """Its message group in a FIFO queue."""


@attrs.define(eq=False, weakref_slot=False)
class TimedHold:
    """What hides messages until a moment: one receive, one change of visibility, one delay.

    Messages are held together because they are hidden together: the cost of an expiry is
    shared by all. A message that has another hold by now is no longer under this one.
    """

    due_s: float
    records: list[SqsRecord] = attrs.field(repr=False)
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


# Identity: message ids, sequence numbers and receipts, made of numbers and never stored.

# Odd, so that multiplying by it modulo a power of two maps no two numbers to one.
_SPREAD = 0x9E3779B97F4A7
_MASK = (1 << 52) - 1
_BLOCK_BITS = 8
_IN_BLOCK = (1 << _BLOCK_BITS) - 1
_LAST_DIGITS = [f"{number:02x}" for number in range(1 << _BLOCK_BITS)]
_KEY_BITS = 62
# AWS's sequence numbers have 20 digits.
_FIRST_SEQUENCE_NUMBER = 10**19


Receipt = tuple[str, str, int, int]
"""What a receipt handle says: the process that gave it out, the queue, the number of the
message, and how often that was received. A bare tuple, for there are many."""


class FileIdentity:
    """The names of one file's messages, and of one process's receipts.

    A message id looks like a random UUID: 60 bits are the message's number, scattered but for
    the last 8, and 62 are the file's own. Messages are mostly sent and received in the order of
    their numbers, so the first half of an id is made once for 256 of them. Receipts name the
    process that gave them out, because receive counts may be forgotten in a crash and given
    again.
    """

    def __init__(self, key: int) -> None:
        self.key = key
        self.boot = secrets.token_hex(4)
        digits = f"{key | (2 << _KEY_BITS):016x}"
        self._tail = f"-{digits[:4]}-{digits[4:]}"
        self._block = -1
        self._head = ""

    @classmethod
    def new(cls) -> Self:
        """For a new file."""
        return cls(secrets.randbits(_KEY_BITS))

    def message_id(self, number: int) -> str:
        """The id of the message that was sent as this number."""
        if number >> _BLOCK_BITS != self._block:
            self._enter_block(number >> _BLOCK_BITS)
        return f"{self._head}{_LAST_DIGITS[number & _IN_BLOCK]}{self._tail}"

    def _enter_block(self, block: int) -> None:
        digits = f"{block * _SPREAD & _MASK:013x}"
        self._block = block
        self._head = f"{digits[:8]}-{digits[8:12]}-4{digits[12:]}"

    def receipt_head(self, queue: int) -> str:
        """How the receipts of a queue begin."""
        return f"{self.boot}.{receipt_name(queue)}."


def receipt_name(queue: int) -> str:
    """What a queue is called in its receipts."""
    return f"{queue:x}"


def receipt_of(head: str, seq: int, receive_count: int) -> str:
    """The receipt of one receive of one message, after the head that its queue's have."""
    # Half the time of an f-string.
    return "%s%x.%x" % (head, seq, receive_count)  # noqa: UP031


def sequence_number(seq: int) -> str:
    """What FIFO queues tell: 20 digits, growing."""
    return str(_FIRST_SEQUENCE_NUMBER + seq)


def read_receipt(text: str) -> Receipt | None:
    """What a receipt says; None when we never made it."""
    try:
        boot, queue, seq, receive_count = text.split(".")
        return boot, queue, int(seq, 16), int(receive_count, 16)
    except ValueError:
        return None


# Move tasks: messages on their way from a dead-letter queue back to where they came from.

NO_SUCH_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
NO_SOURCE = "CouldNotDetermineMessageSource"


class MoveStatus(Enum):
    """How far a task is; only RUNNING and CANCELLING ones still do something."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


@attrs.define(eq=False, kw_only=True)
class MoveTask:
    """One `StartMessageMoveTask`, as it stands."""

    number: int
    """Its place among all tasks, and its key on disk."""
    handle: str
    """A UUID."""
    source: QueueId
    target: QueueId | None
    """None: each message goes to the queue whose redrive policy moved it."""
    rate: int | None
    """Messages a second at most."""
    to_move: int
    started_at_ms: int
    status: MoveStatus = MoveStatus.RUNNING
    moved: int = 0
    failure_reason: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether it still does something."""
        return self.status in (MoveStatus.RUNNING, MoveStatus.CANCELLING)


def handle_of(message_id: str) -> str:
    """A task's handle, from an id that is unique in the file."""
    return str(UUID(message_id))


# Steps: what the state machine decided, for the shell to write down and finish.


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
class NewMessages:
    """Messages about to be stored, without duplicates."""

    records: list[SqsRecord] = attrs.field(factory=list)
    numbers: list[int] = attrs.field(factory=list)
    """For each message that was given its number, or that of its original."""
    keys: list[tuple[str, int]] = attrs.field(factory=list)
    """De-duplication keys that were remembered, with the number of their message."""
    forgotten: list[str] = attrs.field(factory=list)
    """De-duplication keys whose time is over."""
    keys_until_s: float = 0.0
    """How long they are remembered."""
    delays: list[TimedHold] = attrs.field(factory=list)
    """All holds, one for each delay."""


@attrs.define(eq=False)
class TakenBatch:
    """What one receive takes."""

    records: list[SqsRecord]
    receive_counts: list[int]
    """Of each message, with this receive: it may be received again before the answer leaves."""
    hold: TimedHold
    is_repeated: bool = False
    """Whether it was handed out before under the same attempt id."""


@attrs.define
class Deletion:
    """Receipts that were looked at, and the messages to delete."""

    records: list[SqsRecord] = attrs.field(factory=list)
    problems: list[ReceiptProblem | None] = attrs.field(factory=list)
