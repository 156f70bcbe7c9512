"""Packed forms: one message, one queue's settings, one lease's members, as bytes."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import msgspec

from pump.message import Message

from .._engine.record import Record
from .._engine.settings import QueueSettings


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    """A message on disk and on the wire. Append fields with defaults, never change their order."""

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
_decode_settings = msgspec.msgpack.Decoder(dict[str, bool | int | float | str | None]).decode
_decode_members = msgspec.msgpack.Decoder(list[tuple[int, int, str]]).decode
_decode_positions = msgspec.msgpack.Decoder(list[int]).decode


def pack(message: Message) -> bytes:
    """A message as bytes."""
    return _encode(
        (
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
    """The message that `pack` packed."""
    p = _decode(packed)
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


def pack_settings(settings: QueueSettings) -> bytes:
    """Settings by field name, so that fields can be added."""
    return _encode(attrs.asdict(settings))


def unpack_settings(packed: bytes) -> QueueSettings:
    """Settings, where a field that is missing has its default."""
    known = {field.name for field in attrs.fields(QueueSettings)}
    fields = {name: value for name, value in _decode_settings(packed).items() if name in known}
    return msgspec.convert(fields, QueueSettings)


def pack_members(batch_id: str, records: Iterable[Record]) -> bytes:
    """Number, attempt and receipt of each; a receipt made from the batch's own id is left out."""
    return _encode(
        [(r.seq, r.attempt, "" if r.receipt.startswith(batch_id) else r.receipt) for r in records]
    )


def unpack_members(batch_id: str, packed: bytes) -> list[tuple[int, int, str]]:
    """Number, attempt and receipt of each member of a lease batch."""
    return [
        (seq, attempt, receipt or f"{batch_id}.{seq}")
        for seq, attempt, receipt in _decode_members(packed)
    ]


def pack_positions(positions: list[int]) -> bytes:
    """Which settlements were refused."""
    return _encode(positions)


def unpack_positions(packed: bytes) -> list[int]:
    """Which settlements were refused."""
    return _decode_positions(packed)
