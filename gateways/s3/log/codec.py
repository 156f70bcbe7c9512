"""Packed forms: the objects of a log as bytes, and back.

Every object begins with two letters and the version of its form, so that another release, or
something else under the key, is told at once. The rest is msgpack, deflated.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from pump.errors import StorageFailed

from .entries import CommitEntry, Head, Snapshot

VERSION = 1
_MARK = b"PL"
_FAST: Final = 1
_SMALL: Final = 6

_T = TypeVar("_T")

_encode = msgspec.msgpack.Encoder().encode
_entry = msgspec.msgpack.Decoder(CommitEntry)
_head = msgspec.msgpack.Decoder(Head)
_entries = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_snapshot = msgspec.msgpack.Decoder(Snapshot)
_bodies = msgspec.msgpack.Decoder(list[bytes])

# msgspec's errors are ValueErrors; a text that is not UTF-8 raises Python's own.
_UNREADABLE = (ValueError, RecursionError, zlib.error)


def pack_entry(entry: CommitEntry) -> msgspec.Raw:
    """One entry, as the head and the history hold it."""
    return msgspec.Raw(_encode(entry))


def unpack_entry(packed: msgspec.Raw, key: str) -> CommitEntry:
    """One entry of the object `key`."""
    try:
        return _entry.decode(packed)
    except _UNREADABLE as error:
        raise _unreadable(key, str(error)) from error


def pack_head(head: Head) -> bytes:
    """The register."""
    return _pack(head, _FAST)


def unpack_head(body: bytes, key: str) -> Head:
    """The register; `StorageFailed` when it is none of ours."""
    return _unpack(body, key, _head)


def pack_history(entries: Iterable[msgspec.Raw]) -> bytes:
    """Entries that leave the head."""
    return _pack(tuple(entries), _SMALL)


def unpack_history(body: bytes, key: str) -> tuple[msgspec.Raw, ...]:
    """Entries that left the head."""
    return _unpack(body, key, _entries)


def pack_snapshot(snapshot: Snapshot) -> bytes:
    """A replica."""
    return _pack(snapshot, _SMALL)


def unpack_snapshot(body: bytes, key: str) -> Snapshot:
    """A replica."""
    return _unpack(body, key, _snapshot)


def pack_segment(messages: Sequence[bytes]) -> bytes:
    """Messages, each packed (`pump.message`); not deflated, as bodies often are already."""
    return _MARK + bytes([VERSION, 0]) + _encode(messages)


def unpack_segment(body: bytes, key: str) -> list[bytes]:
    """The packed messages of a segment, by their place."""
    return _unpack(body, key, _bodies)


def as_key(text: str | None) -> str | None:
    """A group or de-duplication id as msgpack can carry it, even with half a surrogate pair;
    two that differ stay different.
    """
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _pack(value: object, level: int) -> bytes:
    return _MARK + bytes([VERSION, 1]) + zlib.compress(_encode(value), level)


def _unpack(body: bytes, key: str, decoder: msgspec.msgpack.Decoder[_T] | Any) -> _T:
    if body[:2] != _MARK or len(body) < 4:
        raise _unreadable(key, "it is not an object of a log")
    version, is_deflated = body[2], body[3]
    if version != VERSION:
        raise _unreadable(key, f"its form is version {version}, this release knows {VERSION}")
    try:
        packed = zlib.decompress(body[4:]) if is_deflated else body[4:]
        value: _T = decoder.decode(packed)
    except _UNREADABLE as error:
        raise _unreadable(key, str(error)) from error
    return value


def _unreadable(key: str, why: str) -> StorageFailed:
    return StorageFailed(
        key,
        f"cannot be read ({why}); nothing was changed: use the release that wrote it, or restore "
        f"the object",
    )
