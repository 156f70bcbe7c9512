"""Envelopes of others: SNS notifications, and messages that no Pumphouse sent. Pure.

| of the message   | from                                                                 |
|------------------|----------------------------------------------------------------------|
| id               | SNS's id of a notification, else SQS's; Brighter's own for its messages|
| type …           | the attributes in `_FIELDS`, however their names are spelled         |
| group, de-duplication id, created_at_s | SQS: MessageGroupId, MessageDeduplicationId,   |
|                  | SentTimestamp                                                        |
| headers          | every other attribute, under its own name; binary ones as base64     |

What type each attribute had is kept beside the message (`types_of`), so that a routed copy has them
again as they came: `natives` says which, and puts the rejection's metadata beside them.

CloudEvents attributes (`ce-type` …) keep their names, which is how `pump.cloudevents` finds
them. Nothing here raises: what makes no sense stays as it came.
"""

from __future__ import annotations

import re
from binascii import Error as NotBase64, a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from pump.headers import NATIVE, REJECTION_NAMES, REJECTION_ORDER, REJECTION_REASON
from pump.message import JSON, Message

_SQS: Final = "sqs"
SNS_TOPIC: Final = "snsTopicArn"
SNS_ID: Final = "snsMessageId"
SNS_SUBJECT: Final = "snsSubject"
AWS_TRACE: Final = "X-Amzn-Trace-Id"

# Lower case, without - _ and dots: messageType, message-type and Message_Type are one name.
_FIELDS: Final = {
    "type": "type",
    "messagetype": "type",
    "contenttype": "content_type",
    "correlationid": "correlation_id",
    "replyto": "reply_to",
}
_SPELLING: Final = str.maketrans("", "", "-_.")
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

_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
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
    except _UNREADABLE:
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
    """The message that somebody else sent, with all that came with it."""
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
    """What a message has as SQS's own attributes, the first ones first to be given room: those
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
    field = _FIELDS.get(name.lower().translate(_SPELLING))
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
        field = _FIELDS.get(name.lower().translate(_SPELLING))
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
    except _UNREADABLE:
        return {}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _seconds(milliseconds: object) -> float | None:
    try:
        return int(str(milliseconds)) / 1000
    except (ValueError, OverflowError):
        return None
