"""Messages to rows and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pump.message import Message

from .._kit.envelope import pack, read_packed, unpacked
from .._kit.queues import dead_letter


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


def rows_of(found: Iterable[Sequence[Any]]) -> list[Row]:
    """The rows of a result."""
    return [Row(*each) for each in found]
