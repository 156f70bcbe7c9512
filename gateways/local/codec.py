"""Packed forms: one queue's settings, one lease's members, as bytes; messages by the core's."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import msgspec

from pump.errors import MappingError
from pump.message import Message
from pump.stores.packing import (
    corrupted,
    is_checked,
    pack,
    pack_checked,
    unpack,
    what_changed,
)

from .._engine.record import EngineSettings, Record

__all__ = [
    "pack",
    "pack_checked",
    "pack_members",
    "pack_positions",
    "pack_settings",
    "unpack",
    "unpack_checked",
    "unpack_members",
    "unpack_positions",
    "unpack_settings",
]

# msgspec's errors are ValueErrors; a text that is not UTF-8 raises Python's own.
_UNREADABLE = (ValueError, RecursionError)
_encode = msgspec.msgpack.Encoder().encode
_decode_settings = msgspec.msgpack.Decoder(dict[str, bool | int | float | str | None]).decode
_decode_members = msgspec.msgpack.Decoder(list[tuple[int, int, str]]).decode
_decode_positions = msgspec.msgpack.Decoder(list[int]).decode


def unpack_checked(packed: bytes, seq: int) -> Message:
    """The message that was stored. One that is no longer what was sent says so in its header
    `pumpCorrupted`, with as much of it as can be read, so that it is routed and not lost.

    `MappingError` for a whole one of a later release.
    """
    if is_checked(packed):
        detail = what_changed(packed)
        if not detail:
            return unpack(packed)
        try:
            return corrupted(unpack(packed), detail)
        except MappingError as error:
            return corrupted(_salvaged(packed, seq), f"{detail}; {error.detail}")
    try:
        return unpack(packed)
    except MappingError as error:
        return corrupted(_salvaged(packed, seq), error.detail)


def _salvaged(packed: bytes, seq: int) -> Message:
    return Message(body=packed, id=f"corrupted-{seq}")


def pack_settings(settings: EngineSettings) -> bytes:
    """Settings by field name, so that fields can be added."""
    return _encode(attrs.asdict(settings))


def unpack_settings(packed: bytes) -> EngineSettings:
    """Settings, where a field that is missing has its default; `MappingError` for what is none."""
    known = {field.name for field in attrs.fields(EngineSettings)}
    try:
        given = _decode_settings(packed)
        fields = {name: value for name, value in given.items() if name in known}
        settings = msgspec.convert(fields, EngineSettings)
    except _UNREADABLE as error:
        raise MappingError("queue settings", f"unreadable: {error}") from error
    if settings.max_receive_count is not None and not _can_redrive(settings):
        raise MappingError("queue settings", "max_receive_count needs another queue to move to")
    return settings


def _can_redrive(settings: EngineSettings) -> bool:
    target, limit = settings.dead_letter_queue, settings.max_receive_count
    return limit is not None and limit >= 1 and bool(target) and target != settings.name


def pack_members(batch_id: str, records: Iterable[Record]) -> bytes:
    """Number, attempt and receipt of each; a receipt made from the batch's own id is left out."""
    return _encode(
        [(r.seq, r.attempt, "" if r.receipt.startswith(batch_id) else r.receipt) for r in records]
    )


def unpack_members(batch_id: str, packed: bytes) -> list[tuple[int, int, str]]:
    """Number, attempt and receipt of each member of a lease batch; `MappingError` for others."""
    try:
        members = _decode_members(packed)
    except _UNREADABLE as error:
        raise MappingError("lease", f"unreadable: {error}") from error
    return [(seq, attempt, receipt or f"{batch_id}.{seq}") for seq, attempt, receipt in members]


def pack_positions(positions: list[int]) -> bytes:
    """Which settlements were refused."""
    return _encode(positions)


def unpack_positions(packed: bytes) -> list[int]:
    """Which settlements were refused."""
    return _decode_positions(packed)
