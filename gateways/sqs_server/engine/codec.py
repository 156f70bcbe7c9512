"""Packed forms: the part of a message that only its receiver reads, and a queue's settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from ..model import DEFAULT_ACCOUNT, Attribute, NewMessage
from ..settings import SqsQueueSettings, pack, unpack
from .record import SqsRecord


class Extra(msgspec.Struct, array_like=True, frozen=True):
    """Append fields with defaults; never change their order."""

    sender: str = DEFAULT_ACCOUNT
    attributes: dict[str, tuple[str, Any]] | None = None
    """Type and value; msgspec cannot be told "str or bytes", but keeps which one it was."""
    trace_header: str | None = None
    deduplication_id: str | None = None
    received_before: int = 0
    """How often it was received in the queues that its redrive policies took it from."""


_encode = msgspec.msgpack.Encoder().encode
_decode_extra = msgspec.msgpack.Decoder(Extra).decode
_decode_settings = msgspec.msgpack.Decoder(dict[str, Any]).decode

# A packed extra is an array of five, and of six where a file has the checksum behind it, as a
# number of four bytes: a release that knows of none reads it all the same.
_FIVE, _SIX, _UINT32 = b"\x95", b"\x96", b"\xce"
_PLACE = Struct("<qqqd")

_FEW_BYTES = 64
"""What names only the sender, and is worth sharing among messages."""

PLAIN = Extra()
"""What is unpacked from nothing."""
_PACKED_PLAIN = _encode(PLAIN)


def pack_extra(message: NewMessage) -> bytes | None:
    """All but body and group; None when there is nothing worth telling."""
    attributes = message.attributes
    if not attributes and message.trace_header is None and message.deduplication_id is None:
        return None if message.sender == DEFAULT_ACCOUNT else _pack_sender(message.sender)
    pairs = {name: (each.data_type, each.value) for name, each in attributes.items()}
    return _encode(
        Extra(message.sender, pairs or None, message.trace_header, message.deduplication_id)
    )


def check_text(text: str) -> None:
    """Raise `UnicodeEncodeError` for what no file can hold: half a surrogate pair."""
    # Most texts are ASCII, and know it.
    if not text.isascii():
        text.encode()


def unpack_extra(packed: bytes | None) -> Extra:
    """What `pack_extra` made."""
    return PLAIN if packed is None else _decode_extra(packed)


def with_receives(packed: bytes | None, received_before: int) -> bytes | None:
    """The same, but received so often in earlier queues."""
    if packed is None or len(packed) <= _FEW_BYTES:
        return _with_receives_shared(packed, received_before)
    return _with_receives(packed, received_before)


def attributes_of(extra: Extra) -> Mapping[str, Attribute]:
    """The message attributes as the server's other layers know them."""
    if not extra.attributes:
        return {}
    return {name: Attribute(*pair) for name, pair in extra.attributes.items()}


def seal(record: SqsRecord, queue: int) -> bytes:
    """What a file keeps of a message's extra: the same, with a checksum of the whole message."""
    packed = _PACKED_PLAIN if record.extra is None else record.extra
    origin = 0 if record.origin == record.seq else record.origin
    place = _PLACE.pack(record.seq, queue, origin, record.sent_at_s)
    checksum = _checksum(place, record.group, record.source, packed, record.body.encode())
    return b"".join((_SIX, packed[1:], _UINT32, checksum.to_bytes(4, "big")))


class Stored(NamedTuple):
    """A message's row, as far as its checksum covers it."""

    seq: int
    queue: int
    origin: int | None
    sent_s: float
    group: str | None
    source: str | None
    extra: bytes | None
    body: bytes


def unseal(row: Stored) -> tuple[bytes | None, bool]:
    """The extra as it was before `seal`, and whether the row is what was written.

    Of a row that an older release wrote, it is known only whether it can be read.
    """
    sealed = row.extra
    if sealed is None:
        return None, True
    if sealed[:1] != _SIX or sealed[-5:-4] != _UINT32:
        return sealed, _is_readable(sealed)
    packed = _FIVE + sealed[1:-5]
    place = _PLACE.pack(row.seq, row.queue, row.origin or 0, row.sent_s)
    checksum = _checksum(place, row.group, row.source, packed, row.body)
    is_sound = checksum == int.from_bytes(sealed[-4:], "big")
    if not is_sound:
        return packed, False
    return (None if packed == _PACKED_PLAIN else _shared(packed)), True


def corrupted_extra(packed: bytes | None, told: Mapping[str, str]) -> bytes:
    """For a message that is not what was sent any more: what can be read of its extra, and
    attributes that say so.
    """
    extra = unpack_extra(packed) if packed is None or _is_readable(packed) else PLAIN
    pairs = dict(extra.attributes or {}) | {name: ("String", text) for name, text in told.items()}
    return _encode(msgspec.structs.replace(extra, attributes=pairs))


def _checksum(
    place: bytes, group: str | None, source: str | None, packed: bytes, body: bytes
) -> int:
    checksum = crc32(place)
    if group is not None:
        checksum = crc32(group.encode(errors="surrogateescape"), checksum)
    if source is not None:
        checksum = crc32(source.encode(errors="surrogateescape"), checksum)
    return crc32(body, crc32(packed, checksum))


def _is_readable(packed: bytes) -> bool:
    try:
        _decode_extra(packed)
    except msgspec.MsgspecError:
        return False
    return True


def _shared(packed: bytes) -> bytes:
    return _same(packed) if len(packed) <= _FEW_BYTES else packed


@lru_cache(maxsize=256)
def _same(packed: bytes) -> bytes:
    return packed


def pack_settings(settings: SqsQueueSettings) -> bytes:
    """Settings by field name, so that fields can be added."""
    return _encode(pack(settings))


def unpack_settings(packed: bytes) -> SqsQueueSettings:
    """Settings, where a field that is missing has its default."""
    return unpack(_decode_settings(packed))


def _with_receives(packed: bytes | None, received_before: int) -> bytes | None:
    extra = unpack_extra(packed)
    if extra.received_before == received_before:
        return packed
    again = _encode(msgspec.structs.replace(extra, received_before=received_before))
    return None if again == _PACKED_PLAIN else again


_with_receives_shared = lru_cache(maxsize=256)(_with_receives)


# A server knows few senders, and a million messages of one share these bytes.
@lru_cache(maxsize=256)
def _pack_sender(sender: str) -> bytes:
    return _encode(Extra(sender))
