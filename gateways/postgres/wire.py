"""Messages to rows and back, and lists of values as PostgreSQL's binary arrays. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from pump.message import Message

from .._kit.envelope import pack, read_packed, unpacked
from .._kit.queues import dead_letter

_HEADER: Final = struct.Struct("!iiIii").pack
_LENGTH: Final = struct.Struct("!i").pack
_NULL: Final = _LENGTH(-1)


class Row(NamedTuple):
    """A message as the functions return it."""

    seq: int
    delivery: int
    attempt: int
    lease: int
    moved_at_s: float | None
    moved_attempt: int | None
    moved_from: str | None
    envelope: str | None
    body: bytes


class Receipt(NamedTuple):
    """What proves a delivery: of which message, which one, and under which lease it began."""

    seq: int
    delivery: int
    lease: int

    def __str__(self) -> str:
        return f"{self.seq}.{self.delivery}.{self.lease}"

    @classmethod
    def read(cls, text: str) -> Receipt | None:
        """None for what is no receipt of ours."""
        parts = text.split(".")
        if len(parts) != 3 or not all(each.isascii() and each.isdecimal() for each in parts):
            return None
        seq, delivery, lease = map(int, parts)
        is_possible = seq < 1 << 63 and delivery < 1 << 31 and lease < 1 << 63
        return cls(seq, delivery, lease) if is_possible else None


def envelope_of(message: Message) -> str:
    """Everything of a message but its body: ASCII, which every database can hold."""
    return pack(message)


def octets_of(text: str | None) -> bytes | None:
    """A group or a de-duplication id: any text, and what UTF-8 has no place for."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def text_of(octets: bytes) -> str:
    """The text again."""
    return octets.decode("utf-8", "surrogatepass")


def message_of(row: Row, queue: str) -> Message:
    """The message of a row; the body alone, and an empty type, where another program wrote it."""
    packed = None if row.envelope is None else read_packed(row.envelope)
    if packed is None:
        message = Message(body=row.body, id=f"{queue}-{row.seq}")
    else:
        message = unpacked(packed, row.body)
    if row.moved_from is None:
        return message
    return dead_letter(
        message,
        queue=row.moved_from,
        attempt=row.moved_attempt or 0,
        wall_s=row.moved_at_s or 0.0,
    )


class BinaryArray:
    """A one-dimensional array in the server's binary format.

    The driver's own encoding of lists takes ten times as long (ADR postgres-gateway).
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Texts(BinaryArray):
    """`text[]`."""


class Octets(BinaryArray):
    """`bytea[]`."""


class Bigints(BinaryArray):
    """`bigint[]`."""


class Ints(BinaryArray):
    """`int[]`."""


class Doubles(BinaryArray):
    """`float8[]`."""


ARRAYS: Final[dict[type[BinaryArray], int]] = {
    Octets: 1001,
    Ints: 1007,
    Texts: 1009,
    Bigints: 1016,
    Doubles: 1022,
}
"""The number of each type in the server's catalogue, which never changes."""
_BYTEA, _INT8, _INT4, _TEXT, _FLOAT8 = 17, 20, 23, 25, 701


def texts(values: Sequence[str]) -> Texts:
    """ASCII only."""
    return Texts(_of_octets([each.encode("ascii") for each in values], _TEXT))


def octets(values: Sequence[bytes | None]) -> Octets:
    """Any of them may be null."""
    return Octets(_of_octets(values, _BYTEA))


def octets_or_none(values: Sequence[bytes | None]) -> Octets | None:
    """Null as a whole where all are."""
    return octets(values) if any(each is not None for each in values) else None


def bigints(values: Sequence[int]) -> Bigints:
    """None of them is null."""
    return Bigints(_of_numbers(values, _INT8, "iq", 8))


def ints(values: Sequence[int]) -> Ints:
    """None of them is null."""
    return Ints(_of_numbers(values, _INT4, "ii", 4))


def doubles(values: Sequence[float | None]) -> Doubles:
    """Any of them may be null."""
    packer = struct.Struct("!d").pack
    return Doubles(_of_octets([None if each is None else packer(each) for each in values], _FLOAT8))


def _of_octets(values: Sequence[bytes | None], kind: int) -> bytes:
    parts = [_HEADER(1, 1, kind, len(values), 1)] if values else [_HEADER(0, 0, kind, 0, 0)[:12]]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_LENGTH(len(value)))
            parts.append(value)
    return b"".join(parts)


def _of_numbers(values: Sequence[int], kind: int, code: str, size: int) -> bytes:
    if not values:
        return _HEADER(0, 0, kind, 0, 0)[:12]
    flat: list[int] = []
    for value in values:
        flat.append(size)
        flat.append(value)
    count = len(values)
    return _HEADER(1, 0, kind, count, 1) + struct.pack(f"!{code * count}", *flat)


def rows_of(found: Iterable[Sequence[Any]]) -> list[Row]:
    """The rows of a result."""
    return [Row(*each) for each in found]
