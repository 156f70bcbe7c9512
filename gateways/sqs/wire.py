"""The wire: a `Message` as SQS carries it, and back. Pure.

SQS carries text of XML's characters and at most ten attributes (T11). So the body travels as
it is where it is such text, and as base64 where not; everything else travels in one attribute,
`pump`, as ASCII JSON: any header survives, and a queue that only sees text sees nothing else.

A rejected message, and one that another program sent, has attributes besides (`envelope.natives`),
for readers that do not know us: its own, and why it was rejected. They are given what room is left,
in count and in bytes, and are not read back: `pump` holds the same.

What SQS reads itself is given twice. MessageGroupId is the group, MessageDeduplicationId the
de-duplication id, or the message's id so that a send repeated is one message; a value that SQS
would refuse goes as its hash. The receiver believes the packed ones: SQS puts another
de-duplication id on what it moves to a dead-letter queue.
"""

from __future__ import annotations

import json
import re
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from typing import Any, Final, Literal

import attrs
import msgspec

from pump.headers import NATIVE, REJECTION_REASON
from pump.message import JSON, Message

from .envelope import Notification, foreign, natives, types_of, unwrap
from .limits import MAX_ATTRIBUTES, MAX_BYTES

ATTRIBUTE: Final = "pump"
"""The name of the one attribute that holds what is not the body."""
NO_GROUP: Final = "-"
"""The group of messages without one: a FIFO queue knows no others."""

_STRING: Final = "String"
_ATTRIBUTE_OVERHEAD: Final = len(ATTRIBUTE) + len(_STRING)
_EMPTY_BODY: Final = "-"  # SQS takes no empty body
_CONTROL_BYTES: Final = bytes({*range(0x20)} - {0x9, 0xA, 0xD})
_LEGAL_ID: Final = re.compile(r"[!-~]{1,128}").fullmatch


Encoding = Literal["", "base64", "empty", "zlib"]
"""How the body travels: as it is, as base64, as a placeholder, or compressed and as base64."""


class _Packed(msgspec.Struct, omit_defaults=True, frozen=True):
    """The attribute's content. Members may be added; a change of meaning is a new version."""

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
    encoding: Encoding = msgspec.field(default="", name="e")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Packed).decode
_encode_ascii = json.JSONEncoder(separators=(",", ":")).encode
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, zlib.error)


@attrs.frozen(kw_only=True)
class Entry:
    """One message in SQS's terms; `size` is what SQS counts: body and attributes, in bytes."""

    body: str = attrs.field(repr=False)
    attribute: str = attrs.field(repr=False)
    group: str | None
    deduplication_id: str | None
    size: int
    body_size: int = 0
    """The part of `size` that is the body, as it travels."""
    native: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict, repr=False)
    """Attributes besides, in SQS's words, for readers that do not know us."""


def encode(message: Message, *, is_fifo: bool) -> Entry:
    """The message as an entry of a send; `decode` makes it equal again."""
    body, encoding, size = _body(message.body)
    attribute = _pack(message, encoding)
    if size <= MAX_BYTES < size + _ATTRIBUTE_OVERHEAD + len(attribute):
        body, encoding, size = _compressed(message.body)
        attribute = _pack(message, encoding)
    group, headers = message.group, message.headers
    whole = size + _ATTRIBUTE_OVERHEAD + len(attribute)
    native: dict[str, dict[str, Any]] = {}
    if REJECTION_REASON in headers or NATIVE in headers:
        native, whole = _beside(message, whole)
    return Entry(
        body=body,
        attribute=attribute,
        group=_legal(group) if group else NO_GROUP if is_fifo else None,
        deduplication_id=_legal(message.deduplication_id or message.id) if is_fifo else None,
        size=whole,
        body_size=size,
        native=native,
    )


def _beside(message: Message, size: int) -> tuple[dict[str, dict[str, Any]], int]:
    """The attributes besides `pump` that fit, and the size with them."""
    native: dict[str, dict[str, Any]] = {}
    for name, attribute in natives(message):
        value = attribute.get("StringValue") or attribute["BinaryValue"]
        octets = value.encode() if isinstance(value, str) else value
        taken = len(name) + len(attribute["DataType"]) + len(octets)
        if name == ATTRIBUTE or len(native) == MAX_ATTRIBUTES - 1 or size + taken > MAX_BYTES:
            continue
        native[name] = attribute
        size += taken
    return native, size


def entry_request(entry: Entry, *, entry_id: str, delay_s: int) -> dict[str, Any]:
    """One entry of SendMessageBatch. Without a delay, the queue's own default holds."""
    request: dict[str, Any] = {
        "Id": entry_id,
        "MessageBody": entry.body,
        "MessageAttributes": {
            ATTRIBUTE: {"DataType": _STRING, "StringValue": entry.attribute},
            **entry.native,
        },
    }
    if delay_s:
        request["DelaySeconds"] = delay_s
    if entry.group is not None:
        request["MessageGroupId"] = entry.group
    if entry.deduplication_id is not None:
        request["MessageDeduplicationId"] = entry.deduplication_id
    return request


def decode(raw: Mapping[str, Any], *, unwrap_sns: bool = True) -> Message:
    """The message in one of ReceiveMessage's `Messages`, whoever sent it.

    Never raises: what is not ours, or is no longer readable, is taken as somebody else's,
    with its body and attributes as they came, so that it can be routed.
    """
    return read(raw, unwrap_sns=unwrap_sns)[0]


def read(raw: Mapping[str, Any], *, unwrap_sns: bool = True) -> tuple[Message, str | None]:
    """The message, and how its attributes were typed where another program has sent it."""
    body = raw.get("Body", "")
    try:
        message = _unpack(raw["MessageAttributes"][ATTRIBUTE]["StringValue"], body)
    except (KeyError, TypeError):
        message = None
    if message is not None:
        return message, None
    notification = unwrap(body) if unwrap_sns else None
    if (message := _unwrapped(notification)) is not None:
        return message, None
    return foreign(raw, notification), types_of(raw, notification)


def attempt_of(raw: Mapping[str, Any]) -> int:
    """Which delivery of the message this is, 1 for the first, as SQS counts."""
    try:
        count = raw["Attributes"]["ApproximateReceiveCount"]
        return 1 if count == "1" else max(1, int(count))
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def _unwrapped(notification: Notification | None) -> Message | None:
    if notification is None or ATTRIBUTE not in notification.MessageAttributes:
        return None
    return _unpack(notification.MessageAttributes[ATTRIBUTE].Value, notification.Message)


def _body(body: bytes) -> tuple[str, Encoding, int]:
    if not body:
        return _EMPTY_BODY, "empty", len(_EMPTY_BODY)
    # In UTF-8 a control character is its own byte and no part of another one.
    if len(body.translate(None, _CONTROL_BYTES)) == len(body):
        try:
            text = body.decode()
        except UnicodeDecodeError:
            pass
        else:
            if "\ufffe" not in text and "\uffff" not in text:
                return text, "", len(body)
    text = b2a_base64(body, newline=False).decode("ascii")
    return text, "base64", len(text)


def _compressed(body: bytes) -> tuple[str, Encoding, int]:
    """For a body that fits but for its headers: a message as large as SQS allows could otherwise
    be received, and not be sent on to a dead-letter queue.
    """
    text = b2a_base64(zlib.compress(body), newline=False).decode("ascii")
    return text, "zlib", len(text)


def _pack(message: Message, encoding: Encoding) -> str:
    packed = _Packed(
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


def _unpack(attribute: str, body: str) -> Message | None:
    try:
        packed = _read(attribute)
        octets = body.encode() if not packed.encoding else _octets(packed.encoding, body)
    except _UNREADABLE:
        return None
    if not packed.id:  # nothing of ours is without one, and everything goes by it
        return None
    return Message(
        body=octets,
        id=packed.id,
        type=packed.type,
        content_type=packed.content_type,
        correlation_id=packed.correlation_id,
        reply_to=packed.reply_to,
        group=packed.group,
        deduplication_id=packed.deduplication_id,
        created_at_s=_finite(packed.created_at_s),
        headers=packed.headers,
    )


def _finite(time_s: float | None) -> float | None:
    # The standard library takes NaN and Infinity for JSON; nobody can send them on as such.
    return time_s if time_s is not None and isfinite(time_s) else None


def _read(attribute: str) -> _Packed:
    try:
        return _decode(attribute)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # The standard library also reads the escapes of lone surrogates.
        return msgspec.convert(json.loads(attribute), _Packed)


def _octets(encoding: str, body: str) -> bytes:
    match encoding:
        case "base64":
            return a2b_base64(body, strict_mode=True)
        case "zlib":
            return _decompressed(a2b_base64(body, strict_mode=True))
        case _:
            return b""


def _decompressed(octets: bytes) -> bytes:
    # No more than could have been sent: a small message must not fill the memory.
    reader = zlib.decompressobj()
    body = reader.decompress(octets, MAX_BYTES)
    if not reader.eof:
        raise ValueError("not what was compressed here")
    return body


def _legal(name: str) -> str | None:
    """A name that SQS takes: up to 128 printable characters of ASCII, no spaces."""
    if not name or _LEGAL_ID(name):
        return name or None
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
