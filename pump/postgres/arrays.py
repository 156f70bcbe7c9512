"""Lists of values as PostgreSQL's binary arrays. Pure.

The driver's own encoding of lists takes ten times as long (ADR postgres-gateway).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

_HEADER: Final = struct.Struct("!iiIii").pack
_LENGTH: Final = struct.Struct("!i").pack
_NULL: Final = _LENGTH(-1)


class BinaryArray:
    """A one-dimensional array in the server's binary format."""

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
