"""Packing: a `Message` as bytes, for whatever stores one or sends it to another process."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import msgspec
from msgspec.structs import replace

from .. import headers
from ..errors import MappingError
from ..message import Message

_VERSION = 1
_ESCAPED = 2
"""As version 1, with each text's UTF-8 read as Latin-1: one of them holds half a surrogate pair,
which MessagePack cannot carry, and such a message must be stored and routed like any other."""


class _PackedMessage(msgspec.Struct, array_like=True, frozen=True):
    """Append fields with defaults; never change their order."""

    version: int
    body: bytes
    id: str
    type: str
    content_type: str
    correlation_id: str | None
    reply_to: str | None
    group: str | None
    deduplication_id: str | None
    created_at_s: float | None
    headers: dict[str, str]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_PackedMessage).decode


def pack(message: Message) -> bytes:
    """The message as msgpack; bodies stay as they are."""
    try:
        return _packed(_VERSION, message)
    except UnicodeEncodeError:
        return _packed(_ESCAPED, _with_texts(message, _escaped))


def _packed(version: int, message: Message) -> bytes:
    return _encode(
        (
            version,
            message.body,
            message.id,
            message.type,
            message.content_type,
            message.correlation_id,
            message.reply_to,
            message.group,
            message.deduplication_id,
            message.created_at_s,
            dict(message.headers),
        )
    )


def unpack(packed: bytes) -> Message:
    """The message that was packed; `MappingError` for anything else."""
    try:
        p = _decode(packed)
        message = _message(p)
        if p.version == _ESCAPED:
            return _with_texts(message, _unescaped)
    except (ValueError, RecursionError) as error:
        # Not only msgspec's own errors: a text that is not UTF-8 raises Python's.
        raise MappingError("packed message", f"unreadable: {error}") from error
    if p.version != _VERSION:
        raise MappingError("packed message", f"version {p.version} is not known")
    return message


def _message(p: _PackedMessage) -> Message:
    return Message(
        body=p.body,
        id=p.id,
        type=p.type,
        content_type=p.content_type,
        correlation_id=p.correlation_id,
        reply_to=p.reply_to,
        group=p.group,
        deduplication_id=p.deduplication_id,
        created_at_s=p.created_at_s,
        headers=p.headers,
    )


def _with_texts(message: Message, change: Callable[[str], str]) -> Message:
    def changed(text: str | None) -> str | None:
        return None if text is None else change(text)

    return replace(
        message,
        id=change(message.id),
        type=change(message.type),
        content_type=change(message.content_type),
        correlation_id=changed(message.correlation_id),
        reply_to=changed(message.reply_to),
        group=changed(message.group),
        deduplication_id=changed(message.deduplication_id),
        headers={change(name): change(text) for name, text in message.headers.items()},
    )


def _escaped(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _unescaped(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogatepass")


# A packed message is an array of 11; with its checksum, a 32-bit number, of 12. Older releases read
# the first 11, and what they wrote has no checksum.
_UNCHECKED, _CHECKED, _NUMBER = b"\x9b", b"\x9c", b"\xce"
_NUMBER_BYTES = 5
_MAX_DETAIL = 500


def pack_checked(message: Message) -> bytes:
    """The message as it is stored: with a checksum of what was sent."""
    packed = pack(message)
    return b"".join((_CHECKED, packed[1:], _NUMBER, crc32(packed).to_bytes(4, "big")))


def is_checked(packed: bytes) -> bool:
    """Whether a checksum is with it."""
    return packed[:1] == _CHECKED and packed[-_NUMBER_BYTES : 1 - _NUMBER_BYTES] == _NUMBER


def what_changed(packed: bytes) -> str:
    """How it differs from what was packed, empty where its checksum, which it must have, fits."""
    sent = int.from_bytes(packed[1 - _NUMBER_BYTES :], "big")
    found = crc32(memoryview(packed)[1:-_NUMBER_BYTES], crc32(_UNCHECKED))
    return "" if found == sent else f"its checksum is {found:08x}, that of the send was {sent:08x}"


def corrupted(message: Message, detail: str) -> Message:
    """The message with the header that says it is not what was sent."""
    told = {headers.CORRUPTED: detail[:_MAX_DETAIL]}
    return replace(message, headers={**message.headers, **told})
