"""Packed forms: the part of a message that only its receiver reads, and a queue's settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ..model import DEFAULT_ACCOUNT, Attribute, NewMessage
from ..settings import QueueSettings, pack, unpack


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

_FEW_BYTES = 64
"""What says no more than who the sender is, and is worth sharing among messages."""

PLAIN = Extra()
"""What is unpacked from nothing."""


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


def pack_settings(settings: QueueSettings) -> bytes:
    """Settings by field name, so that fields can be added."""
    return _encode(pack(settings))


def unpack_settings(packed: bytes) -> QueueSettings:
    """Settings, where a field that is missing has its default."""
    return unpack(_decode_settings(packed))


def _with_receives(packed: bytes | None, received_before: int) -> bytes | None:
    extra = unpack_extra(packed)
    if extra.received_before == received_before:
        return packed
    return _encode(msgspec.structs.replace(extra, received_before=received_before))


_with_receives_shared = lru_cache(maxsize=256)(_with_receives)


# A server knows few senders, and a million messages of one share these bytes.
@lru_cache(maxsize=256)
def _pack_sender(sender: str) -> bytes:
    return _encode(Extra(sender))
