"""Envelopes: what of a message its carrier has no place for, as JSON in one attribute or header.

| kind           | what is in it                                      | where                   |
|----------------|----------------------------------------------------|-------------------------|
| `Packed`       | every field but the body                           | SQS, NATS               |
| `exact_json`   | what the carrier's own fields would not hold as is | RabbitMQ, Service Bus   |

Members may be added to both; what a member means does not change. Reading never raises: what is
not readable is taken for another program's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final, Literal

import msgspec

from pump.message import JSON, Message

_encode = msgspec.json.Encoder().encode
_encode_ascii = json.JSONEncoder(separators=(",", ":")).encode

# Lower case, without - _ and dots: messageType, message-type and Message_Type are one name.
_FIELDS: Final = {
    "type": "type",
    "messagetype": "type",
    "contenttype": "content_type",
    "correlationid": "correlation_id",
    "replyto": "reply_to",
}
_SPELLING: Final = str.maketrans("", "", "-_.")
FIELDS: Final = frozenset(_FIELDS.values())
"""The fields that other programs have headers for."""


def field_named(name: str) -> str | None:
    """The field of a message that other programs call so, None when it is a header."""
    return _FIELDS.get(name.lower().translate(_SPELLING))


class Packed(msgspec.Struct, omit_defaults=True, frozen=True):
    """The content of an envelope. A change of meaning is a new version."""

    v: Literal[1]
    id: str
    type: str = ""
    content_type: str = msgspec.field(default=JSON, name="ct")
    correlation_id: str | None = msgspec.field(default=None, name="cid")
    reply_to: str | None = msgspec.field(default=None, name="to")
    group: str | None = msgspec.field(default=None, name="g")
    deduplication_id: str | None = msgspec.field(default=None, name="d")
    created_at_s: float | None = msgspec.field(default=None, name="at")
    headers: dict[str, str] = msgspec.field(default_factory=dict, name="h")
    encoding: str = msgspec.field(default="", name="e")
    """How the body travels, where a carrier does not take every body as it is."""


_decode = msgspec.json.Decoder(Packed).decode


def pack(message: Message, encoding: str = "") -> str:
    """Everything of a message but its body, as ASCII."""
    packed = Packed(
        1,
        message.id,
        message.type,
        message.content_type,
        message.correlation_id,
        message.reply_to,
        message.group,
        message.deduplication_id,
        message.created_at_s,
        dict(message.headers),
        encoding,
    )
    try:
        octets = _encode(packed)
    except UnicodeEncodeError:  # a lone surrogate
        pass
    else:
        if octets.isascii():
            return octets.decode("ascii")
    # The standard library escapes all beyond ASCII, which msgspec does not.
    return _encode_ascii(msgspec.to_builtins(packed))


def read_packed(text: str) -> Packed | None:
    """What was packed; None for what is not ours, or not readable any more."""
    try:
        packed = _decode(text)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        return _read_escapes(text)
    except (ValueError, RecursionError):
        return None
    # Nothing of ours is without an id, and everything goes by it.
    return packed if packed.id else None


def _read_escapes(text: str) -> Packed | None:
    """The standard library also reads the escapes of lone surrogates."""
    try:
        packed = msgspec.convert(json.loads(text), Packed)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return packed if packed.id else None


def unpacked(packed: Packed, body: bytes) -> Message:
    """The message of an envelope and a body."""
    at_s = packed.created_at_s
    return Message(
        body=body,
        id=packed.id,
        type=packed.type,
        content_type=packed.content_type,
        correlation_id=packed.correlation_id,
        reply_to=packed.reply_to,
        group=packed.group,
        deduplication_id=packed.deduplication_id,
        # The standard library takes NaN and Infinity for JSON, which cannot be sent on as such.
        created_at_s=at_s if at_s is not None and isfinite(at_s) else None,
        headers=packed.headers,
    )


def exact_json(exact: Mapping[str, Any]) -> str:
    """What of a message the carrier's own fields do not hold, as JSON."""
    try:
        return _encode(exact).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair: only escapes can carry it.
        return json.dumps(exact)


def read_exact(text: object) -> Mapping[str, Any]:
    """The same read; empty for what is no JSON object."""
    if not isinstance(text, str):
        return {}
    try:
        found = msgspec.json.decode(text)
    except RecursionError:
        return {}
    except msgspec.DecodeError:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return {}
    return found if isinstance(found, Mapping) else {}


def text_or_none(value: object) -> str | None:
    """A member of an envelope that must be text."""
    return value if isinstance(value, str) else None


def foreign_text(value: object) -> str:
    """The value of another program's header as text: JSON where it is not text already."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None:
        return ""
    return msgspec.json.encode(value, enc_hook=str).decode()
