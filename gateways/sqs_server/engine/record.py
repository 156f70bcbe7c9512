"""Records: one message as its queue holds it, the holds that hide it, and their packed forms."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID
from zlib import crc32

import attrs
import msgspec

from ..model import DEFAULT_ACCOUNT, Attribute, NewMessage, QueueId, SqsQueueSettings, pack, unpack

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
        return self.message_ids((number,))[0]

    def message_ids(self, numbers: Iterable[int]) -> list[str]:
        """The ids of the messages that were sent as these numbers."""
        ids: list[str] = []
        for number in numbers:
            if number >> _BLOCK_BITS != self._block:
                self._enter_block(number >> _BLOCK_BITS)
            ids.append(f"{self._head}{_LAST_DIGITS[number & _IN_BLOCK]}{self._tail}")
        return ids

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


# Packed forms: the part of a message that only its receiver reads, and a queue's settings.


class Extra(msgspec.Struct, array_like=True, frozen=True):
    """Append fields with defaults; never change their order."""

    sender: str = DEFAULT_ACCOUNT
    attributes: dict[str, tuple[str, Any]] | None = None
    """Type and value; msgspec cannot be told "str or bytes", but keeps which one it was."""
    trace_header: str | None = None
    deduplication_id: str | None = None
    received_before: int = 0
    """How often it was received in the queues that its redrive policies took it from."""


_encode = msgspec.msgpack.Encoder().encode
_decode_extra = msgspec.msgpack.Decoder(Extra).decode
_decode_settings = msgspec.msgpack.Decoder(dict[str, Any]).decode

# A packed extra is an array of five, and of six where a file has the checksum behind it, as a
# number of four bytes: a release that knows of none reads it all the same.
_FIVE, _SIX, _UINT32 = b"\x95", b"\x96", b"\xce"

_FEW_BYTES = 64
"""What names only the sender, and is worth sharing among messages."""

PLAIN = Extra()
"""What is unpacked from nothing."""
_PACKED_PLAIN = _encode(PLAIN)


def pack_extra(message: NewMessage) -> bytes | None:
    """All but body and group; None when there is nothing worth telling."""
    attributes = message.attributes
    if not attributes and message.trace_header is None and message.deduplication_id is None:
        return None if message.sender == DEFAULT_ACCOUNT else _pack_sender(message.sender)
    pairs = {name: (each.data_type, each.value) for name, each in attributes.items()}
    return _encode(
        Extra(message.sender, pairs or None, message.trace_header, message.deduplication_id)
    )


def check_text(text: str) -> None:
    """Raise `UnicodeEncodeError` for what no file can hold: half a surrogate pair."""
    # Most texts are ASCII, and know it.
    if not text.isascii():
        text.encode()


def unpack_extra(packed: bytes | None) -> Extra:
    """What `pack_extra` made."""
    return PLAIN if packed is None else _decode_extra(packed)


def with_receives(packed: bytes | None, received_before: int) -> bytes | None:
    """The same, but received so often in earlier queues."""
    if packed is None or len(packed) <= _FEW_BYTES:
        return _with_receives_shared(packed, received_before)
    return _with_receives(packed, received_before)


def attributes_of(extra: Extra) -> Mapping[str, Attribute]:
    """The message attributes as the server's other layers know them."""
    if not extra.attributes:
        return {}
    return {name: Attribute(*pair) for name, pair in extra.attributes.items()}


def seal(record: SqsRecord, queue: int) -> bytes:
    """What a file keeps of a message's extra: the same, with a checksum of the whole message."""
    seq, extra = record.seq, record.extra
    is_short = extra is None or len(extra) <= _FEW_BYTES
    packed, head = _sealed_head_shared(extra) if is_short else _sealed_head(extra)
    origin = 0 if record.origin == seq else record.origin
    row = sealed_row(seq, queue, origin, record.sent_at_s)
    if record.group is not None or record.source is not None:
        row += sealed_names(record.group, record.source)
    return head + crc32(record.body.encode(), crc32(row + packed)).to_bytes(4, "big")


def unseal(sealed: bytes | None, row: bytes, body: bytes) -> tuple[bytes | None, bool]:
    """The extra as it was before `seal`, and whether the message is what was written.

    `row` is what `sealed_row` and `sealed_names` say of it. Of a row that an older release wrote,
    it is known only whether it can be read.
    """
    if sealed is None:
        return None, True
    head = sealed[:-4]
    opened = _opened_head_shared(head) if len(head) <= _FEW_BYTES else _opened_head(head)
    if opened is None:
        return sealed, _is_readable(sealed)
    packed, extra = opened
    if crc32(body, crc32(row + packed)) == int.from_bytes(sealed[-4:], "big"):
        return extra, True
    return packed, False


sealed_row = Struct("<qqqd").pack
"""Number, queue, origin (zero where that is the number) and time: what a checksum begins with."""


def sealed_names(group: str | None, source: str | None) -> bytes:
    """What follows for a message that has them."""
    names = (each.encode(errors="surrogateescape") for each in (group, source) if each is not None)
    return b"".join(names)


def corrupted_extra(packed: bytes | None, told: Mapping[str, str]) -> bytes:
    """For a message that is not what was sent any more: what can be read of its extra, and
    attributes that say so.
    """
    extra = unpack_extra(packed) if packed is None or _is_readable(packed) else PLAIN
    pairs = dict(extra.attributes or {}) | {name: ("String", text) for name, text in told.items()}
    return _encode(msgspec.structs.replace(extra, attributes=pairs))


def _sealed_head(extra: bytes | None) -> tuple[bytes, bytes]:
    """What a checksum covers of an extra, and what is written in front of the checksum."""
    packed = _PACKED_PLAIN if extra is None else extra
    return packed, _SIX + packed[1:] + _UINT32


def _opened_head(head: bytes) -> tuple[bytes, bytes | None] | None:
    """What the checksum behind it covers, and the extra; None where there is no checksum."""
    if head[:1] != _SIX or head[-1:] != _UINT32:
        return None
    packed = _FIVE + head[1:-1]
    return packed, None if packed == _PACKED_PLAIN else packed


# As with senders: a million messages share what is packed of them, and what is found in a file.
_sealed_head_shared = lru_cache(maxsize=256)(_sealed_head)
_opened_head_shared = lru_cache(maxsize=256)(_opened_head)


def _is_readable(packed: bytes) -> bool:
    try:
        _decode_extra(packed)
    except msgspec.MsgspecError:
        return False
    return True


def pack_settings(settings: SqsQueueSettings) -> bytes:
    """Settings by field name, so that fields can be added."""
    return _encode(pack(settings))


def unpack_settings(packed: bytes) -> SqsQueueSettings:
    """Settings, where a field that is missing has its default."""
    return unpack(_decode_settings(packed))


def _with_receives(packed: bytes | None, received_before: int) -> bytes | None:
    extra = unpack_extra(packed)
    if extra.received_before == received_before:
        return packed
    again = _encode(msgspec.structs.replace(extra, received_before=received_before))
    return None if again == _PACKED_PLAIN else again


_with_receives_shared = lru_cache(maxsize=256)(_with_receives)


# A server knows few senders, and a million messages of one share these bytes.
@lru_cache(maxsize=256)
def _pack_sender(sender: str) -> bytes:
    return _encode(Extra(sender))
