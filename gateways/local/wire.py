"""The protocol between processes: requests and answers, each a length and MessagePack.

Requests carry a number that the client never uses twice, and are pipelined. Sends and
settlements are carried out once however often they arrive: their answers are stored with their
effect, until `done_below` of a later request says that the client has them.
"""

from __future__ import annotations

from asyncio import StreamReader
from collections.abc import Sequence
from typing import Any

import msgspec

from pump import errors
from pump.errors import ConnectionFailed, PumpError
from pump.outcome import ABANDON, ACK, Abandon, Ack, Action, Defer

PROTOCOL = 1
_LENGTH_BYTES = 4
_ABANDONED = -1.0


class _Frame(msgspec.Struct, array_like=True, frozen=True, tag=True):
    pass


class Hello(_Frame, frozen=True):
    """The first frame of a client; answered like a request with number 0."""

    owner: str
    protocol: int
    number: int = 0


class Send(_Frame, frozen=True):
    """Store messages."""

    number: int
    done_below: int
    queue: str
    packed: list[bytes]
    delay_s: float


class Receive(_Frame, frozen=True):
    """Lease messages; the host does the waiting."""

    number: int
    queue: str
    max_count: int
    wait_s: float
    lease_s: float
    is_repeat: bool = False
    """Asked before, of a host that is gone; it may have been served."""


class Settle(_Frame, frozen=True):
    """Ack (None), defer (the delay) or abandon (-1) by receipt."""

    number: int
    done_below: int
    queue: str
    receipts: list[str]
    actions: list[float | None]


class Extend(_Frame, frozen=True):
    """Make leases end later."""

    number: int
    queue: str
    receipts: list[str]
    lease_s: float


class Declare(_Frame, frozen=True):
    """Create or validate a queue."""

    number: int
    settings: bytes
    make: str
    is_name_only: bool


class Stats(_Frame, frozen=True):
    """Count what is in every queue."""

    number: int


class Peek(_Frame, frozen=True):
    """Look at messages."""

    number: int
    queue: str
    max_count: int


class Purge(_Frame, frozen=True):
    """Remove every message."""

    number: int
    queue: str


class Cancel(_Frame, frozen=True):
    """Stop a receive, and take back what it may have leased already."""

    number: int
    target: int


class Bye(_Frame, frozen=True):
    """The client leaves: end its leases, forget its requests."""

    number: int


Request = Send | Receive | Settle | Extend | Declare | Stats | Peek | Purge | Cancel | Bye | Hello


class Reply(_Frame, frozen=True):
    """The result of a request, packed; its type follows from the request's."""

    number: int
    result: bytes


class Failure(_Frame, frozen=True):
    """The error a request ended with, by name and fields."""

    number: int
    error: str
    fields: list[Any]


Answer = Reply | Failure

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


class Handed(msgspec.Struct, array_like=True, frozen=True):
    """A delivery on the wire. The lease as time left: clocks are not compared."""

    packed: bytes
    receipt: str
    attempt: int
    left_s: float


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


def frame(content: Request | Answer) -> bytes:
    """A request or an answer as it travels."""
    body = encode(content)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


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


def failure(number: int, error: PumpError) -> Failure:
    """An error of ours as it travels."""
    return Failure(number, type(error).__name__, [_plain(value) for value in error.args])


def unpack_failure(failure: Failure, target: str) -> PumpError:
    """The error that travelled."""
    kind = getattr(errors, failure.error, None)
    if isinstance(kind, type) and issubclass(kind, PumpError):
        error: PumpError = kind(*failure.fields)
        return error
    return ConnectionFailed(target, f"the host answered {failure.error}")


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else repr(value)
