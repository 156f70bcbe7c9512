"""Envelopes of others: SNS notifications, and messages that no Pumphouse sent. Pure.

| of the message   | from                                                                 |
|------------------|----------------------------------------------------------------------|
| id               | SNS's id of a notification, else SQS's; Brighter's own for its messages|
| type …           | the attributes in `_FIELDS`, however their names are spelled         |
| group, de-duplication id, created_at_s | SQS: MessageGroupId, MessageDeduplicationId,   |
|                  | SentTimestamp                                                        |
| headers          | every other attribute, under its own name; binary ones as base64     |

CloudEvents attributes (`ce-type` …) keep their names, which is how `pump.cloudevents` finds
them. Nothing here raises: what makes no sense stays as it came.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from pump.message import JSON, Message

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
