"""Legible headers: what a stranger has put on a message, so that the SDK can take it apart. Pure.

The SDK fails at a header that has text which is no UTF-8, a time that no calendar has (AMQP counts
seconds, and not everybody does), or tables in tables without end. That ends its connection, and the
same message, delivered again, the next one: a stranger could keep every queue of a gateway from
working. So what it cannot read is left out, or shown as far as it can be; the rest stays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import StrEnum

from pamqp import decode
from pamqp.header import ContentHeader

_HEAD_BYTES = 12
"""Class, weight and the size of the body; then come the flags of what follows."""


class _Kind(StrEnum):
    TEXT = "text"
    TABLE = "table"
    OCTET = "octet"
    TIME = "time"


_PROPERTIES = (
    *(_Kind.TEXT, _Kind.TEXT, _Kind.TABLE, _Kind.OCTET, _Kind.OCTET, _Kind.TEXT, _Kind.TEXT),
    *(_Kind.TEXT, _Kind.TEXT, _Kind.TIME, _Kind.TEXT, _Kind.TEXT, _Kind.TEXT, _Kind.TEXT),
)
"""In AMQP's order; the first has the highest of sixteen flags."""
_FIXED_BYTES = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"su", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"D", 5),
    **dict.fromkeys(b"V\0", 0),
}
"""How long the values in a table are, by their types; all others begin with their length."""


def legible(header: bytes) -> bytes:
    """The content of a header frame, as long as it was: itself where the SDK can read it."""
    if _is_readable(header):
        return header
    [flags] = struct.unpack_from(">H", header, _HEAD_BYTES)
    kept, parts = 0, [b""]
    for number, part in _properties(flags, header[_HEAD_BYTES + 2 :]):
        if part is not None:
            kept |= 1 << 15 - number
            parts.append(part)
    written = header[:_HEAD_BYTES] + struct.pack(">H", kept) + b"".join(parts)
    # Nobody looks at what is behind the last property.
    return written.ljust(len(header), b"\0")


def _is_readable(header: bytes) -> bool:
    try:
        ContentHeader().unmarshal(header)
    except Exception:  # broad: whatever it fails with would end the connection
        return False
    return True


def _properties(flags: int, octets: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Each property that there is, by its place; None for one that makes no sense."""
    for number, kind in enumerate(_PROPERTIES):
        if not flags & 1 << 15 - number:
            continue
        size = _size(kind, octets)
        part, octets = octets[:size], octets[size:]
        if len(part) < size:
            return
        yield number, _readable(kind, part)


def _size(kind: _Kind, octets: bytes) -> int:
    match kind:
        case _Kind.TEXT:
            return 1 + int.from_bytes(octets[:1])
        case _Kind.TABLE:
            return 4 + int.from_bytes(octets[:4])
        case _Kind.TIME:
            return 8
    return 1


def _readable(kind: _Kind, part: bytes) -> bytes | None:
    match kind:
        case _Kind.TEXT:
            return _text(part)
        case _Kind.TABLE:
            entries = b"".join(_entries(part[4:]))
            return len(entries).to_bytes(4) + entries
        case _Kind.TIME:
            return part if _can_be_read(b"T" + part) else None
    return part


def _text(part: bytes) -> bytes:
    """Text with its length before it; what is no text in it is a question mark."""
    text = part[1:]
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("ascii", "replace").replace("\ufffd", "?").encode()
    return part[:1] + text


def _entries(octets: bytes) -> Iterator[bytes]:
    """Those entries of a table that can be read."""
    while octets:
        name = octets[: 1 + octets[0]]
        value = octets[len(name) :]
        if not value:
            return
        size = _FIXED_BYTES.get(value[0])
        size = 4 + int.from_bytes(value[1:5]) if size is None else size
        octets, value = value[1 + size :], value[: 1 + size]
        if len(value) == 1 + size and _can_be_read(value):
            yield _text(name) + value


def _can_be_read(value: bytes) -> bool:
    try:
        decode.embedded_value(value)
    except Exception:  # broad: as above
        return False
    return True
