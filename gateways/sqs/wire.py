"""The wire: a `Message` as SQS carries it, and back. Pure.

SQS carries text of XML's characters and at most ten attributes (T11). So the body travels as
it is where it is such text, and as base64 where not; everything else travels in one attribute,
`pump`, as ASCII JSON: any header survives, and a queue that only sees text sees nothing else.

A rejected message, and one that another program sent, has attributes besides (`natives`),
for readers that do not know us: its own, and why it was rejected. They get the space that is left,
in count and in bytes, and are not read back: `pump` holds the same.

What SQS reads itself is given twice. MessageGroupId is the group, MessageDeduplicationId the
de-duplication id, or the message's id so that a send repeated is one message; a value that SQS
would refuse goes as its hash. The receiver believes the packed ones: SQS puts another
de-duplication id on what it moves to a dead-letter queue.
"""

from __future__ import annotations

import re
import zlib
from binascii import Error as NotBase64, a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, Literal

import attrs
import msgspec

from pump.headers import NATIVE, REJECTION_NAMES, REJECTION_ORDER, REJECTION_REASON
from pump.message import JSON, Message

from .._kit.envelope import field_named, pack, read_packed, unpacked
from .calls import MAX_ATTRIBUTES, MAX_BYTES

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


@attrs.frozen(kw_only=True)
class SendEntry:
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


def encode(message: Message, *, is_fifo: bool) -> SendEntry:
    """The message as an entry of a send; `decode` makes it equal again."""
    body, encoding, size = _body(message.body)
    attribute = pack(message, encoding)
    if size <= MAX_BYTES < size + _ATTRIBUTE_OVERHEAD + len(attribute):
        body, encoding, size = _compressed(message.body)
        attribute = pack(message, encoding)
    group, headers = message.group, message.headers
    whole = size + _ATTRIBUTE_OVERHEAD + len(attribute)
    native: dict[str, dict[str, Any]] = {}
    if REJECTION_REASON in headers or NATIVE in headers:
        native, whole = _beside(message, whole)
    return SendEntry(
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


def entry_request(entry: SendEntry, *, entry_id: str, delay_s: int) -> dict[str, Any]:
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
    """The message in one of ReceiveMessage's `Messages`, of any producer.

    Never raises: what is not ours, or is no longer readable, is taken as another program's,
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


def _unpack(attribute: str, body: str) -> Message | None:
    packed = read_packed(attribute)
    if packed is None:
        return None
    try:
        octets = body.encode() if not packed.encoding else _octets(packed.encoding, body)
    except (ValueError, zlib.error):
        return None
    return unpacked(packed, octets)


def _octets(encoding: str, body: str) -> bytes:
    match encoding:
        case "base64":
            return a2b_base64(body, strict_mode=True)
        case "zlib":
            return _decompressed(a2b_base64(body, strict_mode=True))
        case "empty":
            return b""
        case _:
            raise ValueError("an encoding of another version")


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


# Envelopes of others: SNS notifications, and messages that no Pumphouse sent. Pure.
#
# | of the message                         | from                                                  |
# |----------------------------------------|-------------------------------------------------------|
# | id                                     | SNS's id of a notification, else SQS's; Brighter's    |
# |                                        | own for its messages                                  |
# | type …                                 | the attributes that `field_named` knows, however they |
# |                                        | are spelled                                           |
# | group, de-duplication id, created_at_s | SQS: MessageGroupId, MessageDeduplicationId,          |
# |                                        | SentTimestamp                                         |
# | headers                                | every other attribute, under its own name; binary     |
# |                                        | ones as base64                                        |
#
# What type each attribute had is kept beside the message (`types_of`), so that a routed copy has
# them again as they came: `natives` says which, and puts the rejection's metadata beside them.
#
# CloudEvents attributes (`ce-type` …) keep their names, which is how `pump.cloudevents` finds
# them. Nothing here raises: what makes no sense stays as it came.

_SQS: Final = "sqs"
SNS_TOPIC: Final = "snsTopicArn"
SNS_ID: Final = "snsMessageId"
SNS_SUBJECT: Final = "snsSubject"
AWS_TRACE: Final = "X-Amzn-Trace-Id"

# Brighter's message-type is MT_COMMAND, MT_EVENT …: what to do with it, not what it is.
_BRIGHTER_KIND: Final = "MT_"
_BRIGHTER_EVENT: Final = "cloudeventheaders"
_BRIGHTER_BAG: Final = "bag"

_TYPE: Final = re.compile(r"(String|Number|Binary)(\.[A-Za-z0-9_.-]{1,200})?", re.ASCII).fullmatch
_NAME: Final = re.compile(
    r"(?!aws\.|amazon\.)(?=.{1,256}\Z)[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII | re.IGNORECASE
).fullmatch
_NUMBER: Final = re.compile(
    r"[+-]?\d{1,38}(\.\d{0,38})?(e[+-]?\d{1,3})?", re.ASCII | re.I
).fullmatch
_NO_TEXT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that SQS takes in no value."""

_BAD_ENVELOPE = (msgspec.MsgspecError, ValueError, RecursionError)
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class _SnsAttribute(msgspec.Struct, frozen=True):
    Type: str
    Value: str


class Notification(msgspec.Struct, frozen=True):
    """What SNS wraps around a message unless its subscription asks for raw delivery."""

    Type: Literal["Notification"]
    MessageId: str
    TopicArn: str
    Message: str
    Subject: str | None = None
    MessageAttributes: dict[str, _SnsAttribute] = {}

    def texts(self) -> dict[str, str]:
        """The message's attributes; SNS has made base64 of the binary ones already."""
        return {name: attribute.Value for name, attribute in self.MessageAttributes.items()}

    def types(self) -> dict[str, str]:
        """The type of each of them."""
        return {name: attribute.Type for name, attribute in self.MessageAttributes.items()}


_decode_notification = msgspec.json.Decoder(Notification).decode


def unwrap(body: str) -> Notification | None:
    """The notification that a body is, None when it is something else."""
    if '"TopicArn"' not in body:
        return None
    try:
        return _decode_notification(body)
    except _BAD_ENVELOPE:
        return None


def texts(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The text of each of SQS's message attributes, base64 for a binary one."""
    return dict(_texts(attributes))


def _texts(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, attribute in attributes.items():
        match attribute:
            case {"StringValue": str(text)}:
                yield name, text
            case {"BinaryValue": bytes(octets)}:
                yield name, b2a_base64(octets, newline=False).decode("ascii")


def foreign(raw: Mapping[str, Any], notification: Notification | None) -> Message:
    """The message that another program sent, with all that came with it."""
    if notification is None:
        body, given = raw.get("Body", ""), texts(raw.get("MessageAttributes") or {})
        headers, message_id = {}, raw.get("MessageId", "")
    else:
        body, given = notification.Message, notification.texts()
        headers, message_id = _sns_headers(notification), notification.MessageId
    system = raw.get("Attributes") or {}
    fields = _fields(given, headers)
    if "AWSTraceHeader" in system:
        headers.setdefault(AWS_TRACE, system["AWSTraceHeader"])
    return Message(
        # A lone surrogate is no Unicode text, but routing it must work all the same.
        body=body.encode("utf-8", "surrogatepass"),
        id=fields.get("id") or message_id or raw.get("MessageId", ""),
        type=fields.get("type", ""),
        content_type=fields.get("content_type") or JSON,
        correlation_id=fields.get("correlation_id"),
        reply_to=fields.get("reply_to"),
        group=system.get("MessageGroupId"),
        deduplication_id=system.get("MessageDeduplicationId"),
        created_at_s=_seconds(system.get("SentTimestamp")),
        headers=headers,
    )


def types_of(raw: Mapping[str, Any], notification: Notification | None) -> str | None:
    """The types of the attributes that a message of another program has, for its routed copy."""
    if notification is not None:
        types = notification.types()
    else:
        types = dict(_types(raw.get("MessageAttributes") or {}))
    # What SQS would not take again is not kept: another server, or a fault, has made it.
    legal = {name: kind for name, kind in sorted(types.items()) if _NAME(name) and _TYPE(kind)}
    return _json({_SQS: legal}) if legal else None


def _types(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, attribute in attributes.items():
        match attribute:
            case {"DataType": str(kind)}:
                yield name, kind


def natives(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a message has as SQS's own attributes, the first ones first to be given space: those
    that it came with from another program, then why it was rejected.
    """
    headers = message.headers
    is_rejected = REJECTION_REASON in headers
    for name, kind in _own(headers).items():
        # A name of ours says what this rejection says, not the one before.
        if is_rejected and name in REJECTION_NAMES:
            continue
        text = _text_of(message, name)
        if text and _NAME(name):
            yield name, _native(kind, text)
    if is_rejected:
        for name in REJECTION_ORDER:
            if text := headers.get(name):
                yield name, _native("String", text)


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    """The attributes' names and types, as `types_of` has kept them."""
    if NATIVE not in headers:
        return {}
    types = _members(headers[NATIVE]).get(_SQS)
    if not isinstance(types, dict):
        return {}
    return {name: kind for name, kind in types.items() if isinstance(kind, str) and _TYPE(kind)}


def _text_of(message: Message, name: str) -> str | None:
    if name in message.headers:
        return message.headers[name]
    field = field_named(name)
    return None if field is None else getattr(message, field)


def _native(kind: str, text: str) -> dict[str, Any]:
    """As that type where the text is still one of it, since SQS would refuse the message."""
    if kind.startswith("Binary"):
        try:
            return {"DataType": kind, "BinaryValue": a2b_base64(text, strict_mode=True)}
        except (NotBase64, ValueError):
            kind = "String"
    if kind.startswith("Number") and not _NUMBER(text):
        kind = "String"
    return {"DataType": kind, "StringValue": _NO_TEXT.sub("\ufffd", text)}


def _sns_headers(notification: Notification) -> dict[str, str]:
    headers = {SNS_TOPIC: notification.TopicArn, SNS_ID: notification.MessageId}
    if notification.Subject is not None:
        headers[SNS_SUBJECT] = notification.Subject
    return headers


def _fields(given: Mapping[str, str], headers: dict[str, str]) -> dict[str, str]:
    """The fields among the attributes; the rest is put into `headers`."""
    fields: dict[str, str] = {}
    # Sorted: SQS promises no order, and a redelivery must be read as the delivery before.
    for name, text in sorted(given.items()):
        field = field_named(name)
        if field == "type" and text.startswith(_BRIGHTER_KIND):
            fields |= _of_brighter(given, headers)
        elif field is not None and field not in fields:
            fields[field] = text
            continue
        headers[name] = text
    return fields


def _of_brighter(given: Mapping[str, str], headers: dict[str, str]) -> dict[str, str]:
    """Id and type as Brighter says them. Its bag is opened: rejection headers travel in it."""
    for name, value in _members(given.get(_BRIGHTER_BAG, "")).items():
        headers.setdefault(name, value if isinstance(value, str) else _json(value))
    event = _members(given.get(_BRIGHTER_EVENT, ""))
    said = {"id": given.get("id"), "type": event.get("type")}
    return {field: text for field, text in said.items() if isinstance(text, str) and text}


def _members(text: str) -> dict[str, Any]:
    try:
        return _decode_object(text)
    except _BAD_ENVELOPE:
        return {}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _seconds(milliseconds: object) -> float | None:
    try:
        return int(str(milliseconds)) / 1000
    except (ValueError, OverflowError):
        return None
