"""The wire: a `Message` as NATS carries it, and back. Pure.

The body travels as it is. Everything else travels in one header, `Pump`, as ASCII JSON: NATS
headers hold no line breaks, no blanks at their ends and no names beyond ASCII, and a message
of ours may have all of these. What the server reads itself is given twice: the group as the
subject's last token, the de-duplication id as `Nats-Msg-Id`.

A message without that header is another program's: its headers are taken under their own names,
`Content-Type`, `Correlation-Id`, `Reply-To` and `Type` as the fields they mean.

A rejected message has its headers, and why it was rejected, as headers of NATS besides, for readers
that do not know us, unless the message gets too large by them. They are not read back: `Pump` holds
the same.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import attrs
import msgspec

from pump.headers import NATIVE, REJECTION_REASON
from pump.message import JSON, Message

from .._kit.envelope import FIELDS, field_named, pack, read_packed, unpacked

HEADER: Final = "Pump"
"""The one header that holds what is not the body."""
MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"

_OF_THE_SERVER: Final = "nats-"
_NATS: Final = "nats"
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
"""What the SDK takes for a header's name."""
_NO_TEXT: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_MAX_ID: Final = 200


def encode(message: Message, *, stream: str, max_bytes: int = sys.maxsize) -> dict[str, str]:
    """The headers of a message on its way to a stream; `decode` makes it equal again."""
    headers = {HEADER: _pack(message), EXPECTED_STREAM: stream}
    if message.deduplication_id:
        headers[MESSAGE_ID] = legal_id(message.deduplication_id)
    if REJECTION_REASON in message.headers:
        whole = {**_natives(message), **headers}
        if size_of(whole, message.body) <= max_bytes:
            return whole
    return headers


def native_of(headers: Mapping[str, str] | None) -> str | None:
    """How another program spelled the headers that are fields of the message, None for none."""
    if not headers or HEADER in headers:
        return None
    spelled = {field: name for name, field in reversed(_fields_in(headers))}
    return json.dumps({_NATS: spelled}) if spelled else None


def _natives(message: Message) -> dict[str, str]:
    """The message's headers as another program would have set them."""
    given = dict(message.headers)
    for field, name in _spelled(given.pop(NATIVE, "{}")).items():
        if field in FIELDS and (value := getattr(message, field)):
            given[name] = value
    return {
        name: _NO_TEXT.sub(" ", text).strip()
        for name, text in given.items()
        if _NAME(name) and not name.lower().startswith(_OF_THE_SERVER)
    }


def _spelled(native: str) -> dict[str, str]:
    try:
        return msgspec.convert(json.loads(native)[_NATS], dict[str, str])
    except (msgspec.MsgspecError, ValueError, RecursionError, KeyError, TypeError):
        return {}


def size_of(headers: Mapping[str, str], body: bytes) -> int:
    """What the server counts against its `max_payload`: headers and body, in bytes."""
    lines = sum(len(name) + _length(text) + len(": \r\n") for name, text in headers.items())
    return len("NATS/1.0\r\n\r\n") + lines + len(body)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def schedule_at(time_s: float) -> str:
    """When a delayed message is due, in the words of `Nats-Schedule`."""
    return f"@at {datetime.fromtimestamp(time_s, UTC).isoformat().replace('+00:00', 'Z')}"


def legal_id(text: str) -> str:
    """A de-duplication id as the server compares it: printable ASCII, or its hash."""
    if len(text) <= _MAX_ID and text.isascii() and text.isprintable() and text == text.strip():
        return text
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@attrs.frozen(kw_only=True)
class NatsArrival:
    """What the server says of a message: where it is stored, and which delivery this is."""

    stream: str
    consumer: str
    attempt: int
    sequence: int
    stored_at_ns: int

    @property
    def stored_at_s(self) -> float:
        """The same as Unix time."""
        return self.stored_at_ns / 1e9


def arrival_of(reply: str) -> NatsArrival | None:
    """Read the subject that a delivery is acknowledged on; None when it is no such subject.

    `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<…>.<time>.<pending>`; newer servers may
    put a domain and an account in front of the stream, and more behind.
    """
    tokens = reply.split(".")
    if tokens[:2] != ["$JS", "ACK"] or len(tokens) < 9:
        return None
    said = tokens[2:] if len(tokens) == 9 else tokens[4:]
    try:
        return NatsArrival(
            stream=said[0],
            consumer=said[1],
            attempt=max(1, int(said[2])),
            sequence=int(said[3]),
            stored_at_ns=int(said[5]),
        )
    except (ValueError, IndexError):
        return None


def decode(
    headers: Mapping[str, str] | None,
    body: bytes,
    *,
    stored_as: str,
    stored_at_s: float | None = None,
    group: str | None = None,
) -> Message:
    """The message of any producer. Never raises: what is not ours, or no longer readable, is
    taken as another program's, with its body and headers as they came, so that it can be routed.
    """
    headers = headers or {}
    packed = headers.get(HEADER)
    message = None if packed is None else _unpack(packed, body)
    if message is not None:
        return message
    fields, others = _sorted_out(headers)
    return Message(
        body=body,
        id=headers.get(MESSAGE_ID) or stored_as,
        type=fields.get("type", ""),
        content_type=fields.get("content_type") or JSON,
        correlation_id=fields.get("correlation_id"),
        reply_to=fields.get("reply_to"),
        group=group,
        created_at_s=stored_at_s,
        headers=others,
    )


def _fields_in(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers whose names are those of fields, and which ones."""
    found = [(name, field_named(name)) for name in headers]
    return [(name, field) for name, field in found if field is not None]


def _sorted_out(headers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    # The first of two that mean one field.
    spelled = {field: name for name, field in reversed(_fields_in(headers))}
    fields = {field: headers[name] for field, name in spelled.items()}
    others: dict[str, str] = {}
    for name, text in headers.items():
        if name not in spelled.values() and not name.lower().startswith(_OF_THE_SERVER):
            others[name] = text
    return fields, others


def _pack(message: Message) -> str:
    # 0x7F is ASCII, but no printable character as headers want it; JSON need not escape it.
    return pack(message).replace("\x7f", "\\u007f")


def _unpack(text: str, body: bytes) -> Message | None:
    packed = read_packed(text)
    return None if packed is None else unpacked(packed, body)
