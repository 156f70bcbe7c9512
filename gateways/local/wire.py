"""The protocol between processes: requests and answers, each a length and MessagePack.

Requests carry a number that the client never uses twice, and are pipelined. Sends and
settlements are carried out once however often they arrive: their answers are stored with their
effect, until `done_below` of a later request says that the client has them.
"""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec

from pump import errors
from pump.errors import ConnectionFailed, PumpError
from pump.outcome import ABANDON, ACK, Abandon, Ack, Action, Defer
from pump.subscription import MakeChannels

PROTOCOL = 2
UNREADABLE = (ValueError, RecursionError)
"""What decoding a frame raises that is not one of ours. msgspec's errors are ValueErrors, and so
is a text that is not UTF-8."""

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What SQLite's integers hold: one that they do not would fail others' writes as well."""
Seconds = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
"""More than a `timedelta` holds, and never NaN, which no heap of times could be ordered by."""
Owner = Annotated[str, msgspec.Meta(pattern=r"\A[\w-]{1,64}\Z")]
"""The name of a lock file, and nothing that leads elsewhere."""

_LENGTH_BYTES = 4
_ABANDONED = -1.0


class _Frame(msgspec.Struct, array_like=True, frozen=True, tag=True):
    pass


class Hello(_Frame, frozen=True):
    """The first frame of a client; answered like a request with number 0, with the host's clock
    (nothing from an older release).
    """

    owner: Owner
    protocol: int
    number: Whole = 0


class SendRequest(_Frame, frozen=True, tag="Send"):
    """Store messages."""

    number: Whole
    done_below: Whole
    queue: str
    packed: list[bytes]
    delay_s: Seconds


class Receive(_Frame, frozen=True):
    """Lease messages; the host does the waiting."""

    number: Whole
    queue: str
    max_count: Whole
    wait_s: Seconds
    lease_s: Seconds
    is_repeat: bool = False
    """Asked before, of a host that is gone; it may have been served."""


class SettleRequest(_Frame, frozen=True, tag="Settle"):
    """Ack (None), defer (the delay) or abandon (-1) by receipt."""

    number: Whole
    done_below: Whole
    queue: str
    receipts: list[str]
    actions: list[Seconds | None]
    asked_at_s: Seconds | None = None
    """As `ExtendRequest.asked_at_s`: what was asked for in time counts."""

    def __post_init__(self) -> None:
        if len(self.receipts) != len(self.actions):
            raise ValueError("each receipt needs an action")


class ExtendRequest(_Frame, frozen=True, tag="Extend"):
    """Make leases end later."""

    number: Whole
    queue: str
    receipts: list[str]
    lease_s: Seconds
    asked_at_s: Seconds | None = None
    """When, by the host's clock: the lease counts from then, however long it lay unread. None
    from an older release: from when it is read."""


class AcceptSession(_Frame, frozen=True):
    """Lock a session; the host does the waiting."""

    number: Whole
    queue: str
    session: str | None
    wait_s: Seconds
    lease_s: Seconds
    is_repeat: bool = False
    """Asked before, of a host that is gone; it may have been accepted."""


class ReceiveInSession(_Frame, frozen=True):
    """Lease messages of a session; the host does the waiting."""

    number: Whole
    queue: str
    session: str
    token: str
    max_count: Whole
    wait_s: Seconds
    is_repeat: bool = False
    """As `Receive.is_repeat`."""


class RenewSession(_Frame, frozen=True):
    """Make a session's lock end later."""

    number: Whole
    queue: str
    session: str
    token: str
    lease_s: Seconds
    asked_at_s: Seconds | None = None
    """As `ExtendRequest.asked_at_s`."""


class ReleaseSession(_Frame, frozen=True):
    """Hand back what a session has in flight, and let go of it."""

    number: Whole
    queue: str
    session: str
    token: str


class Declare(_Frame, frozen=True):
    """Create or validate a queue."""

    number: Whole
    settings: bytes
    make: MakeChannels
    is_name_only: bool


class Stats(_Frame, frozen=True):
    """Count what is in every queue."""

    number: Whole


class Peek(_Frame, frozen=True):
    """Look at messages."""

    number: Whole
    queue: str
    max_count: Whole


class PurgeRequest(_Frame, frozen=True, tag="Purge"):
    """Remove every message."""

    number: Whole
    queue: str


class Cancel(_Frame, frozen=True):
    """Stop a request that waits, and take back what it may have leased or locked already."""

    number: Whole
    target: Whole


class Bye(_Frame, frozen=True):
    """The client leaves: end its leases, forget its requests."""

    number: Whole


Request = (
    SendRequest
    | Receive
    | SettleRequest
    | ExtendRequest
    | AcceptSession
    | ReceiveInSession
    | RenewSession
    | ReleaseSession
    | Declare
    | Stats
    | Peek
    | PurgeRequest
    | Cancel
    | Bye
    | Hello
)
Waiting = Receive | AcceptSession | ReceiveInSession
"""Requests that the host may keep waiting; cancelled, they leave nothing behind."""


class PackedReply(_Frame, frozen=True, tag="Reply"):
    """The result of a request, packed; its type follows from the request's."""

    number: int
    result: bytes


class RemoteFailure(_Frame, frozen=True, tag="Failure"):
    """The error a request ended with, by name and fields."""

    number: int
    error: str
    fields: list[Any]


Answer = PackedReply | RemoteFailure

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


class Handed(msgspec.Struct, array_like=True, frozen=True):
    """A delivery on the wire."""

    packed: bytes
    receipt: str
    attempt: int
    left_s: float
    """What was left of the lease when it was sent; all that an older release knows."""
    broker_id: str | int | None
    expires_at_s: float | None = None
    """When the lease ends by the host's clock, so that an answer which lies unread makes it no
    longer."""


class GrantedSession(msgspec.Struct, array_like=True, frozen=True):
    """A session on the wire, with the end of its lock as `Handed` has that of a lease."""

    session: str
    token: str
    left_s: float
    expires_at_s: float | None = None


class Count(msgspec.Struct, array_like=True, frozen=True):
    """A queue's numbers on the wire."""

    name: str
    visible: int
    in_flight: int
    delayed: int
    oldest_age_s: float | None


decode_handed = msgspec.msgpack.Decoder(list[Handed]).decode
decode_counts = msgspec.msgpack.Decoder(list[Count]).decode
decode_packed = msgspec.msgpack.Decoder(list[bytes]).decode
decode_number = msgspec.msgpack.Decoder(int).decode
decode_granted: Callable[[bytes], GrantedSession | None] = msgspec.msgpack.Decoder(
    GrantedSession | None
).decode
decode_seconds = msgspec.msgpack.Decoder(float).decode


def frame(content: Request | Answer) -> bytes:
    """A request or an answer as it travels."""
    body = encode(content)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def write(writer: StreamWriter, content: Request | Answer) -> None:
    """Send, unless the connection is over: its reader finds that out.

    A request is asked again of the next host, so nothing is lost by leaving it unsent. uvloop
    raises a bare RuntimeError for a write to a closed transport, asyncio only warns.
    """
    if not writer.is_closing():
        writer.write(frame(content))


async def read_frame(reader: StreamReader) -> bytes:
    """The next frame's content; `IncompleteReadError` when the peer is gone."""
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    return await reader.readexactly(length)


def pack_actions(actions: Sequence[Action]) -> list[float | None]:
    """Actions as numbers."""
    return [_pack_action(action) for action in actions]


def unpack_actions(packed: Sequence[float | None]) -> list[Action]:
    """Actions from numbers."""
    return [
        ACK if number is None else ABANDON if number == _ABANDONED else Defer(number)
        for number in packed
    ]


def _pack_action(action: Action) -> float | None:
    match action:
        case Ack():
            return None
        case Defer(delay_s):
            return max(0.0, delay_s)
        case Abandon():
            return _ABANDONED


def failure(number: int, error: PumpError) -> RemoteFailure:
    """An error of ours as it travels."""
    return RemoteFailure(number, type(error).__name__, [_plain(value) for value in error.args])


def unpack_failure(failure: RemoteFailure, target: str) -> PumpError:
    """The error that travelled."""
    kind = getattr(errors, failure.error, None)
    if isinstance(kind, type) and issubclass(kind, PumpError):
        try:
            error: PumpError = kind(*failure.fields)
            str(error)  # a host of another version may have other fields
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            pass
        else:
            return error
    return ConnectionFailed(target, f"the host answered {failure.error}")


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else repr(value)
