"""Messages as AMQP carries them, and back. Pure.

Ours travels so that any AMQP client can read it: the fields that AMQP has are its properties, and
headers are headers, as text. What AMQP would not carry exactly is in one header more, `pump`, as
JSON: a time finer than seconds, the group, empty or over-long fields, and headers whose names mean
something to RabbitMQ (`CC`, `BCC`, `x-…`).

| header           | what it is                                                              |
|------------------|-------------------------------------------------------------------------|
| `pump`           | what has no place elsewhere, exactly                                    |
| `pump-stored-id` | names what was sent: a retry keeps it, a copy sent again has another    |
| `pump-attempts`  | deliveries before it was sent once more, and of which queue: the broker |
|                  | forgets those, and what was handed back untried is not among them       |
| `pump-order`     | grows with each message that is sorted into a session                   |
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import attrs
import msgspec

from pump import headers as names
from pump.message import JSON, Message, new_id
from pump.outcome import RejectionReason

from .._kit.envelope import exact_json, foreign_text, read_exact, text_or_none

EXACT = "pump"
STORED_ID = "pump-stored-id"
ATTEMPTS = "pump-attempts"
ORDER = "pump-order"
DELIVERY_COUNT = "x-delivery-count"
MAX_SHORT_BYTES = 255
MAX_FIELD_NAME_BYTES = 128
"""Of a header's name. A longer one the SDK would cut off, without an error."""
_OURS = frozenset({EXACT, STORED_ID, ATTEMPTS, ORDER})
_RABBITMQ = "rabbitmq"
_ROUTED_BY = frozenset({"cc", "bcc"})
_SHORT = {
    "id": "message_id",
    "type": "type",
    "content_type": "content_type",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
}
"""Our fields that AMQP has a property for: text of up to 255 bytes."""
_DEFAULTS: Mapping[str, str | None] = {"type": "", "content_type": JSON}


@attrs.frozen(kw_only=True)
class Parcel:
    """A message as AMQP carries it: properties by their AMQP names, headers, body."""

    body: bytes = attrs.field(repr=False)
    properties: Mapping[str, Any] = attrs.field(factory=dict)
    headers: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @property
    def delivery_count(self) -> int | None:
        """How often the broker has taken it back, where it counts."""
        count = self.headers.get(DELIVERY_COUNT)
        return count if isinstance(count, int) else None

    @property
    def stored_id(self) -> str | None:
        """What names it among copies, None where a foreign producer sent it."""
        stored = self.headers.get(STORED_ID)
        return stored if isinstance(stored, str) else None

    @property
    def order(self) -> int:
        """Its place among the messages of a session."""
        order = self.headers.get(ORDER)
        return order if isinstance(order, int) else 0


def encode(message: Message) -> Parcel:
    """What is sent for a message."""
    properties: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for field, name in _SHORT.items():
        value = getattr(message, field)
        if value and _is_short(value):
            properties[name] = value
        elif value != _DEFAULTS.get(field):
            exact[field] = value
    if message.created_at_s is not None:
        exact["created_at_s"] = message.created_at_s
        if (stamp := _stamp(message.created_at_s)) is not None:
            properties["timestamp"] = stamp
    for field in ("group", "deduplication_id"):
        if (value := getattr(message, field)) is not None:
            exact[field] = value
    plain: dict[str, Any] = {k: v for k, v in message.headers.items() if _is_plain(k, v)}
    if len(plain) < len(message.headers):
        exact["headers"] = {k: v for k, v in message.headers.items() if k not in plain}
        if names.NATIVE in message.headers:
            plain |= _as_they_came(plain, message.headers[names.NATIVE])
    stored_id = new_id()
    # Never without: the SDK tells a message that comes back by it.
    properties.setdefault("message_id", stored_id)
    headers: dict[str, Any] = {**plain, STORED_ID: stored_id}
    if exact:
        headers[EXACT] = exact_json(exact)
    return Parcel(body=message.body, properties=properties, headers=headers)


def again(parcel: Parcel, *, queue: str, attempts: int) -> Parcel:
    """The same stored message, to be sent once more with the deliveries it had on this queue."""
    kept = _kept(parcel)
    carried = {ATTEMPTS: {"queue": queue, "count": attempts}}
    return _identified(attrs.evolve(parcel, headers={**kept, **carried}))


def sorted_in(parcel: Parcel, *, order: int) -> Parcel:
    """The same stored message as it goes on in a session, after those of a lower order."""
    return _identified(attrs.evolve(parcel, headers={**_kept(parcel), ORDER: order}))


def dead(parcel: Parcel, *, queue: str, attempts: int, at_s: float) -> Parcel:
    """What goes to the dead-letter queue when a message has been delivered too often."""
    kept = _kept(parcel)
    kept.pop(ATTEMPTS, None)
    said = {
        names.ORIGINAL_TOPIC: queue,
        names.REJECTION_REASON: RejectionReason.DELIVERY_ERROR.value,
        names.REJECTION_DETAIL: f"delivered {attempts} times (max_receive_count)",
        names.REJECTION_TIMESTAMP: datetime.fromtimestamp(at_s, UTC).isoformat(),
        names.ORIGINAL_TYPE: names.original_type(
            str(parcel.properties.get("type") or ""), _headers(kept, None)
        ),
        names.ATTEMPTS: str(attempts),
    }
    return _identified(attrs.evolve(parcel, headers={**kept, **said}))


def decode(parcel: Parcel) -> Message:
    """The message that a parcel is, of any producer. Never raises: what is odd is left out."""
    exact = read_exact(parcel.headers.get(EXACT))
    found: dict[str, Any] = {}
    for field, name in _SHORT.items():
        value = exact.get(field, parcel.properties.get(name))
        found[field] = value if isinstance(value, str) else _DEFAULTS.get(field)
    created = exact.get("created_at_s")
    if not isinstance(created, int | float):
        stamp = parcel.properties.get("timestamp")
        created = stamp.timestamp() if isinstance(stamp, datetime) else None
    return Message(
        body=parcel.body,
        # Without one there is nothing that tells it from others.
        id=found.pop("id") or new_id(),
        group=text_or_none(exact.get("group")),
        deduplication_id=text_or_none(exact.get("deduplication_id")),
        created_at_s=created,
        headers=_headers(parcel.headers, exact.get("headers")),
        **found,
    )


def native_of(parcel: Parcel) -> str | None:
    """Which headers of a message that another program sent are no text, and what instead."""
    kinds = {
        key: kind
        for key, value in parcel.headers.items()
        if not isinstance(value, str) and key not in _OURS and not _is_brokers(key)
        if (kind := _kind(value))
    }
    return json.dumps({_RABBITMQ: kinds}) if kinds else None


def _kind(value: object) -> str:
    """How `_as_they_came` makes the value of its text again; empty where it could not."""
    match value:
        case None:
            return "none"
        case datetime():
            return "time"
        case bytes() | bytearray():
            return "bytes" if foreign_text(value).encode() == value else "base64"
        case _ if _can_be_written(value):
            is_same = bool(msgspec.json.decode(foreign_text(value)) == value)
            return "json" if is_same else ""
    return ""


def _as_they_came(plain: Mapping[str, str], native: str) -> dict[str, Any]:
    """The headers that were no text, as what they were."""
    kinds = read_exact(native).get(_RABBITMQ)
    found: dict[str, Any] = {}
    for key, kind in kinds.items() if isinstance(kinds, Mapping) else ():
        if key in plain and key not in names.REJECTION_NAMES:
            found[key] = _restored(kind, plain[key])
    return found


def _restored(kind: object, text: str) -> Any:
    try:
        match kind:
            case "none" if not text:
                return None
            case "time":
                return datetime.fromisoformat(text)
            case "bytes":
                return bytearray(text.encode())
            case "base64":
                return bytearray(base64.b64decode(text, validate=True))
            case "json":
                return _sendable(msgspec.json.decode(text))
    except (ValueError, msgspec.DecodeError):
        pass
    return text


def attempt_of(parcel: Parcel, *, queue: str, is_redelivered: bool) -> int:
    """Which delivery this is, from 1: what the broker counted, after what it was not told of.

    A classic queue counts nothing and only says that it is not the first.
    """
    count, carried = parcel.delivery_count, 0
    match parcel.headers.get(ATTEMPTS):
        case {"queue": of, "count": int(before)} if of == queue and before > 0:
            carried = before
    return carried + (int(is_redelivered) if count is None else count) + 1


def _identified(parcel: Parcel) -> Parcel:
    """A foreign producer's message may have no id; what we send again does."""
    if parcel.properties.get("message_id"):
        return parcel
    return attrs.evolve(parcel, properties={**parcel.properties, "message_id": new_id()})


def _kept(parcel: Parcel) -> dict[str, Any]:
    """The headers that stay with a message which is sent again."""
    return {key: _sendable(value) for key, value in parcel.headers.items() if not _is_brokers(key)}


def _sendable(value: Any) -> Any:
    """The value itself where the SDK writes what it has read, and else its text, which is what
    `decode` makes of it.
    """
    return value if _can_be_written(value) else foreign_text(value)


def _can_be_written(value: object) -> bool:
    match value:
        case str() | bool() | datetime() | bytearray() | None:
            return True
        case int():
            return -(1 << 63) <= value < 1 << 63
        case float():
            return _is_single(value)
        case list():
            return all(map(_can_be_written, value))
        case dict():
            return all(map(_can_be_written, value.values()))
    return False


def _is_single(value: float) -> bool:
    """Whether four bytes hold it, which is all that the SDK writes."""
    try:
        [written] = struct.unpack(">f", struct.pack(">f", value))
    except OverflowError:
        return False
    return bool(written == value)


def _headers(table: Mapping[str, Any], odd: object) -> dict[str, str]:
    found = _death(table)
    for key, value in table.items():
        if key not in _OURS and not _is_brokers(key):
            found[key] = value if isinstance(value, str) else foreign_text(value)
    if isinstance(odd, Mapping):
        found.update((key, value) for key, value in odd.items() if isinstance(value, str))
    return found


def _death(table: Mapping[str, Any]) -> dict[str, str]:
    """In our words, why the broker itself has dead-lettered a message; a delay is no such thing."""
    reason = table.get("x-first-death-reason")
    if reason in (None, "expired"):
        return {}
    return {
        names.ORIGINAL_TOPIC: str(table.get("x-first-death-queue", "")),
        names.REJECTION_REASON: RejectionReason.DELIVERY_ERROR.value,
        names.REJECTION_DETAIL: f"RabbitMQ: {reason}",
    }


def _is_brokers(key: str) -> bool:
    """Whether RabbitMQ has put the header on, to say where a message has been."""
    return key == DELIVERY_COUNT or key.startswith(("x-death", "x-first-death", "x-last-death"))


def _is_plain(key: str, text: str) -> bool:
    lowered = key.lower()
    if not key or lowered in _ROUTED_BY or lowered.startswith(("x-", "pump")):
        return False
    try:
        text.encode()
        return len(key.encode()) <= MAX_FIELD_NAME_BYTES
    except UnicodeEncodeError:
        return False


def _is_short(text: str) -> bool:
    try:
        return len(text.encode()) <= MAX_SHORT_BYTES
    except UnicodeEncodeError:
        return False


def _stamp(time_s: float) -> datetime | None:
    """AMQP's time is of whole seconds since 1970."""
    if not 0 <= time_s < 1 << 62:
        return None
    try:
        return datetime.fromtimestamp(int(time_s), UTC)
    except (ValueError, OverflowError, OSError):
        return None
