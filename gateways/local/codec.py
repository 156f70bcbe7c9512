"""Packed forms: one queue's settings, one lease's members, as bytes; messages by the core's."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import msgspec

from pump.stores.packing import pack, unpack

from .._engine.record import Record
from .._engine.settings import QueueSettings

__all__ = [
    "pack",
    "pack_members",
    "pack_positions",
    "pack_settings",
    "unpack",
    "unpack_members",
    "unpack_positions",
    "unpack_settings",
]

_encode = msgspec.msgpack.Encoder().encode
_decode_settings = msgspec.msgpack.Decoder(dict[str, bool | int | float | str | None]).decode
_decode_members = msgspec.msgpack.Decoder(list[tuple[int, int, str]]).decode
_decode_positions = msgspec.msgpack.Decoder(list[int]).decode


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
