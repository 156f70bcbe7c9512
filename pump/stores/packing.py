"""Packing: a `Message` as bytes, for whatever stores one or sends it to another process."""

from __future__ import annotations

import msgspec

from ..errors import MappingError
from ..message import Message

_VERSION = 1


class _Packed(msgspec.Struct, array_like=True, frozen=True):
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
_decode = msgspec.msgpack.Decoder(_Packed).decode


def pack(message: Message) -> bytes:
    """The message as msgpack; bodies stay as they are."""
    return _encode(
        (
            _VERSION,
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
    except msgspec.MsgspecError as error:
        raise MappingError("packed message", f"unreadable: {error}") from error
    if p.version != _VERSION:
        raise MappingError("packed message", f"version {p.version} is not known")
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
