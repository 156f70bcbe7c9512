"""Packing: a `Message` as bytes, for whatever stores one. Versioned by its leading field."""

from __future__ import annotations

import msgspec

from ..errors import MappingError
from ..message import Message

_VERSION = 1
_Fields = tuple[
    int,
    bytes,
    str,
    str,
    str,
    str | None,
    str | None,
    str | None,
    str | None,
    float | None,
    dict[str, str],
]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Fields)


def pack(message: Message) -> bytes:
    """The message as msgpack; bodies stay as they are."""
    return _encoder.encode(
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
            message.headers,
        )
    )


def unpack(packed: bytes) -> Message:
    """The message that was packed; `MappingError` for anything else."""
    try:
        version, body, id_, type_, content_type, *rest = _decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise MappingError("packed message", f"unreadable: {error}") from error
    if version != _VERSION:
        raise MappingError("packed message", f"version {version} is not known")
    correlation_id, reply_to, group, deduplication_id, created_at_s, headers = rest
    return Message(
        body=body,
        id=id_,
        type=type_,
        content_type=content_type,
        correlation_id=correlation_id,
        reply_to=reply_to,
        group=group,
        deduplication_id=deduplication_id,
        created_at_s=created_at_s,
        headers=headers,
    )
