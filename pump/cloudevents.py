"""CloudEvents 1.0, in and out: a message is an event, an event a message.

| CloudEvents attribute                              | message                               |
|----------------------------------------------------|---------------------------------------|
| id, type, time, datacontenttype                    | id, type, created_at, content_type    |
| partitionkey, correlationid, replyto,              | group, correlation_id, reply_to,      |
| deduplicationid                                    | deduplication_id                      |
| traceparent, tracestate                            | the headers of those names            |
| source, subject, dataschema, and every extension   | the headers `ce-source`, `ce-subject`…|
| data                                               | body                                  |

In structured mode the body holds all of it as JSON, in binary mode the body is the data and
the attributes are headers. Headers that are no attribute stay headers in both.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from .errors import MappingError
from .headers import TRACE_PARENT, TRACE_STATE, parse_content_type
from .message import JSON, Message

STRUCTURED: Final = "application/cloudevents+json"
"""The content type of an event in structured mode."""
SPEC_VERSION: Final = "1.0"

_FAMILY = "application/cloudevents"
_PREFIX = "ce-"
# HTTP, NATS and RabbitMQ write ce-, Kafka ce_, AMQP 1.0 cloudEvents: or cloudEvents_.
_ATTRIBUTE_HEADER = re.compile(r"(ce-|ce_|cloudevents[:_])(.+)", re.IGNORECASE)
_LEGAL_NAME = re.compile(r"[a-z0-9]+")
# The HTTP binding encodes the space, the quote, the percent sign and all beyond ASCII.
_UNQUOTED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

_REQUIRED = ("specversion", "id", "source", "type")
_FIELDS = {
    "id": "id",
    "type": "type",
    "partitionkey": "group",
    "correlationid": "correlation_id",
    "replyto": "reply_to",
    "deduplicationid": "deduplication_id",
}
_TRACE = (TRACE_PARENT, TRACE_STATE)
# Reading takes these off, so a message that still has one was not read before.
_MARKS = frozenset({"specversion", "id", "type"})
_ENVELOPE = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_event(message: Message) -> bool:
    """Return whether a message is a CloudEvent in either mode, well-formed or not."""
    content_type = message.content_type
    if content_type != JSON and content_type[:40].strip().lower().startswith(_FAMILY):
        return True
    # A loop, because a generator costs more than what it looks at, for every message.
    for name in message.headers:  # noqa: SIM110
        if name[:1] in "cC" and _attribute(name) in _MARKS:
            return True
    return False


def from_event(message: Message) -> Message:
    """Return the message that a CloudEvent carries.

    Raises MappingError that names the attribute when it is not a proper CloudEvent 1.0.
    """
    if message.content_type.strip().lower().startswith(_FAMILY):
        return _from_structured(message)
    return _from_binary(message)


def to_structured(message: Message, *, source: str | None = None) -> Message:
    """Return `message` as a CloudEvent in structured mode: all of it in a JSON body.

    Without a `source`, the one it was read with stays. Raises MappingError for a message that
    makes no CloudEvent, such as one without a type.
    """
    message = from_event(message) if is_event(message) else message
    envelope: dict[str, Any] = _attributes_of(message, source)
    envelope["datacontenttype"] = message.content_type or JSON
    envelope |= _data_of(message)
    try:
        body = msgspec.json.encode(envelope)
    except UnicodeEncodeError as error:
        raise MappingError(message.type, "CloudEvents attributes must be Unicode text") from error
    headers = _plain_headers(message.headers)
    return replace(message, body=body, content_type=STRUCTURED, headers=headers)


def to_binary(message: Message, *, source: str | None = None) -> Message:
    """Return `message` as a CloudEvent in binary mode: attributes as `ce-…` headers.

    Without a `source`, the one it was read with stays. Raises MappingError for a message that
    makes no CloudEvent, such as one without a type.
    """
    message = from_event(message) if is_event(message) else message
    headers = _plain_headers(message.headers)
    for name, value in _attributes_of(message, source).items():
        try:
            headers[_PREFIX + name] = quote(value, safe=_UNQUOTED)
        except UnicodeEncodeError as error:
            raise _bad(message.type, name, "must be Unicode text") from error
    return replace(message, headers=headers)


def _bad(message_type: str, name: str, fault: str) -> MappingError:
    return MappingError(message_type, f"CloudEvents attribute {name!r} {fault}")


def _attribute(header: str) -> str | None:
    found = _ATTRIBUTE_HEADER.fullmatch(header)
    return found[2].lower() if found else None


def _plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if _attribute(name) is None}


def _from_binary(message: Message) -> Message:
    attributes: dict[str, str] = {}
    for header, value in message.headers.items():
        name = _attribute(header)
        if name is None:
            continue
        try:
            # Kafka and AMQP carry Unicode, so their values are not percent-encoded.
            is_quoted = header[: len(_PREFIX)].lower() == _PREFIX
            attributes[name] = unquote(value, errors="strict") if is_quoted else value
        except UnicodeDecodeError as error:
            raise _bad(message.type, name, "is not percent-encoded UTF-8") from error
    # NATS leaves Content-Type to say that an event is structured.
    content_type = attributes.pop("datacontenttype", message.content_type)
    return _message(message, attributes, message.body, content_type)


def _from_structured(message: Message) -> Message:
    if parse_content_type(message.content_type).media != STRUCTURED:
        shown = message.content_type[:100]
        raise MappingError(
            message.type, f"{shown!r} is not read; send one event a message, as {STRUCTURED}"
        )
    try:
        members = _ENVELOPE.decode(message.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MappingError(message.type, "the CloudEvent is not a proper JSON object") from error
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    attributes = dict(_texts(message.type, members))
    content_type = attributes.pop("datacontenttype", JSON)
    body = _body(attributes.get("type", message.type), data, encoded, content_type)
    return _message(message, attributes, body, content_type)


def _texts(message_type: str, members: Mapping[str, msgspec.Raw]) -> Iterator[tuple[str, str]]:
    for name, raw in members.items():
        match _value(raw):
            case None:
                continue
            case bool() as flag:
                yield name.lower(), "true" if flag else "false"
            case str() | int() as value:
                yield name.lower(), str(value)
            case _:
                raise _bad(message_type, name[:100], "must be a string, a boolean or an integer")


def _value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return raw


def _body(
    message_type: str, data: msgspec.Raw | None, encoded: msgspec.Raw | None, content_type: str
) -> bytes:
    encoded_text = None if encoded is None else _value(encoded)
    if encoded_text is not None:
        if data is not None and bytes(data) != b"null":
            raise _bad(message_type, "data_base64", "stands beside data; send one of them")
        try:
            return b64decode(encoded_text, validate=True)
        except (ValueError, TypeError) as error:
            raise _bad(message_type, "data_base64", "is not base64") from error
    if data is None:
        return b""
    if parse_content_type(content_type).is_json:
        return bytes(data)
    text = _value(data)
    if not isinstance(text, str):
        raise _bad(message_type, "data", "must be a string where datacontenttype is not JSON")
    return text.encode()


def _message(
    carrier: Message, attributes: dict[str, str], body: bytes, content_type: str
) -> Message:
    message_type = attributes.get("type", carrier.type)
    for name in _REQUIRED:
        if not attributes.get(name):
            raise _bad(message_type, name, "is missing or empty")
    if attributes.pop("specversion") != SPEC_VERSION:
        raise _bad(message_type, "specversion", f"must be {SPEC_VERSION}")
    changes: dict[str, Any] = {"body": body, "content_type": content_type}
    if "time" in attributes:
        changes["created_at_s"] = _time_s(message_type, attributes.pop("time"))
    for name, field in _FIELDS.items():
        if name in attributes:
            changes[field] = attributes.pop(name)
    headers = _plain_headers(carrier.headers)
    headers |= {name: attributes.pop(name) for name in _TRACE if name in attributes}
    headers |= {_PREFIX + name: value for name, value in attributes.items()}
    return replace(carrier, **changes, headers=headers)


def _time_s(message_type: str, text: str) -> float:
    try:
        moment = msgspec.convert(text, datetime)
    except ValueError as error:  # msgspec's own, and Python's for half a surrogate pair
        raise _bad(message_type, "time", "is not an RFC 3339 time") from error
    if moment.tzinfo is None:
        raise _bad(message_type, "time", "has no time zone")
    return moment.timestamp()


def _attributes_of(message: Message, source: str | None) -> dict[str, str]:
    carried = {name: value for name, value in message.headers.items() if name in _TRACE}
    for header, value in message.headers.items():
        if (name := _attribute(header)) is not None:
            carried[name] = value
    attributes = carried | {"specversion": SPEC_VERSION}
    if source is not None:
        attributes["source"] = source
    if message.created_at_s is not None:
        attributes["time"] = _time_text(message.type, message.created_at_s)
    for name, field in _FIELDS.items():
        if (text := getattr(message, field)) is not None:
            attributes[name] = text
    for name in _REQUIRED:
        if not attributes.get(name):
            raise _bad(message.type, name, "is missing or empty")
    for name in attributes:
        if not _LEGAL_NAME.fullmatch(name) or name in ("data", "datacontenttype"):
            raise _bad(message.type, name[:100], "must be named with a-z and 0-9, and not data")
    return attributes


def _time_text(message_type: str, time_s: float) -> str:
    try:
        return datetime.fromtimestamp(time_s, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError) as error:
        raise _bad(message_type, "time", "is beyond the calendar") from error


def _data_of(message: Message) -> dict[str, Any]:
    if not message.body:
        return {}
    kind = parse_content_type(message.content_type)
    if kind.is_json:
        try:
            msgspec.json.decode(message.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _bad(message.type, "data", "is not the JSON its content type says") from error
        return {"data": msgspec.Raw(message.body)}
    if kind.media.startswith("text/") and kind.is_utf_8:
        try:
            return {"data": message.body.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": b64encode(message.body).decode()}
