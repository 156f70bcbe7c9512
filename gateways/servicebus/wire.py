"""Messages as Service Bus carries them, and back. Pure.

Ours travels so that any Service Bus client can read it: the fields that AMQP has are its
properties, and headers are application properties, as text. What would not arrive exactly is in
one property more, `pump`, as JSON: our id, since the service's own is for finding duplicates, a
fine time, the group, empty fields, and headers that the service would take for its own.

| property              | what it is                                                            |
|-----------------------|-----------------------------------------------------------------------|
| `pump`                | what has no place elsewhere, exactly                                  |
| `pump-stored-id`      | names what was sent: a retry keeps it, a copy sent again has another  |
| `pump-attempts`       | deliveries before a delayed retry: the service counts the copy anew   |
| `pump-attempts-of`    | on which queue those were                                             |
| `pump-handed-back`    | how many deliveries were handed back untried: the service counts them |
| `pump-handed-back-of` | on which queue those were                                             |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

import attrs
import msgspec

from pump import headers as names
from pump.message import JSON, Message, new_id
from pump.outcome import RejectionReason

from .._kit.envelope import exact_json, foreign_text, read_exact, text_or_none
from .names import group_of, legal_id, session_id_of

EXACT: Final = "pump"
STORED_ID: Final = "pump-stored-id"
ATTEMPTS: Final = "pump-attempts"
ATTEMPTS_OF: Final = "pump-attempts-of"
HANDED_BACK: Final = "pump-handed-back"
HANDED_BACK_OF: Final = "pump-handed-back-of"
DEAD_REASON: Final = "DeadLetterReason"
DEAD_DETAIL: Final = "DeadLetterErrorDescription"
MAX_TEXT_CHARS: Final = 4_096
"""Longer fields travel in `pump`. Service Bus takes up to 32 KB for a property, 64 KB for all."""
_HAND_BACKS: Final = frozenset({HANDED_BACK, HANDED_BACK_OF})
_OURS: Final = _HAND_BACKS | {EXACT, STORED_ID, ATTEMPTS, ATTEMPTS_OF, DEAD_REASON, DEAD_DETAIL}
_FIELDS: Final = {
    "type": "subject",
    "content_type": "content_type",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
}
"""Our fields that AMQP has a property for."""
_DEFAULTS: Final[Mapping[str, str | None]] = {"type": "", "content_type": JSON}
_SERVICEBUS: Final = "servicebus"
_MAX_INT: Final = 2**31
_PER_MESSAGE_BYTES: Final = 512
"""More than AMQP's frames around a message take."""


@attrs.frozen(kw_only=True)
class ServiceBusParcel:
    """A message as Service Bus carries it: AMQP's properties by the SDK's names, and the rest."""

    body: bytes = attrs.field(repr=False)
    properties: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """The application properties."""

    @property
    def session_id(self) -> str | None:
        """The session it belongs to."""
        return self.properties.get("session_id")

    @property
    def size(self) -> int:
        """About what the service counts, and rather more than less."""
        texts = [*self.properties.values(), *self.headers, *map(str, self.headers.values())]
        said = sum(len(text.encode("utf-8", "surrogatepass")) + 8 for text in texts)
        return len(self.body) + said + _PER_MESSAGE_BYTES


@attrs.frozen(kw_only=True)
class ServiceBusArrival:
    """What the service says of a message that it gives out."""

    parcel: ServiceBusParcel
    token: str
    """The lock."""
    sequence: int
    delivery_count: int = 0
    """How often it was given out before."""
    enqueued_at_s: float | None = None
    lock_s: float = 0.0
    """How long the lock lasts, by the service's time and ours."""
    dead_letter_source: str | None = None


def encode(message: Message) -> ServiceBusParcel:
    """What is sent for a message."""
    stored_id = new_id()
    # Never our id: where duplicates are looked for, a message sent again would be dropped.
    is_unique = message.deduplication_id is None
    properties = {
        "message_id": stored_id if is_unique else legal_id(message.deduplication_id or "")
    }
    exact: dict[str, Any] = {"id": message.id}
    for field, name in _FIELDS.items():
        value = getattr(message, field)
        # AMQP 1.0 has the content type as a symbol, which is ASCII.
        is_fit = field != "content_type" or (value or "").isascii()
        if value and is_fit and _is_plain_text(value):
            properties[name] = value
        elif value != _DEFAULTS.get(field):
            exact[field] = value
    for field in ("created_at_s", "group", "deduplication_id"):
        if (value := getattr(message, field)) is not None:
            exact[field] = value
    if (session_id := session_id_of(message.group)) is not None:
        properties["session_id"] = session_id
    plain: dict[str, Any] = {k: v for k, v in message.headers.items() if _is_plain(k, v)}
    if len(plain) < len(message.headers):
        exact["headers"] = {k: v for k, v in message.headers.items() if k not in plain}
        if names.NATIVE in message.headers:
            plain |= _as_they_came(plain, message.headers[names.NATIVE])
    headers = {**plain, STORED_ID: stored_id, EXACT: exact_json(exact)}
    return ServiceBusParcel(body=message.body, properties=properties, headers=headers)


def in_session(parcel: ServiceBusParcel, session_id: str) -> ServiceBusParcel:
    """The same, for a queue where every message must have a session."""
    return attrs.evolve(parcel, properties={**parcel.properties, "session_id": session_id})


def again(arrival: ServiceBusArrival, *, queue: str, attempts: int) -> ServiceBusParcel:
    """The same stored message, to be sent once more with the deliveries it had on this queue.

    Under another id of the service's: it would be dropped as a duplicate of itself.
    """
    parcel = arrival.parcel
    return attrs.evolve(
        parcel,
        properties={**parcel.properties, "message_id": new_id()},
        headers={
            **{
                key: _resendable(value)
                for key, value in parcel.headers.items()
                # The service begins to count anew.
                if key not in _HAND_BACKS
            },
            EXACT: exact_json(_kept(arrival)),
            STORED_ID: stored_id_of(arrival),
            ATTEMPTS: attempts,
            ATTEMPTS_OF: queue,
        },
    )


def decode(arrival: ServiceBusArrival) -> Message:
    """The message that has arrived, of any producer. Never raises: what is odd is left out."""
    parcel = arrival.parcel
    exact = _exact(parcel.headers.get(EXACT))
    found: dict[str, Any] = {}
    for field, name in _FIELDS.items():
        value = exact.get(field, parcel.properties.get(name))
        found[field] = value if isinstance(value, str) else _DEFAULTS.get(field)
    created = exact.get("created_at_s", None if exact else arrival.enqueued_at_s)
    is_time = isinstance(created, int | float) and isfinite(created)
    return Message(
        body=parcel.body,
        id=text_or_none(exact.get("id")) or _service_id(arrival),
        group=_group(parcel, exact),
        deduplication_id=text_or_none(exact.get("deduplication_id")),
        created_at_s=created if is_time else None,
        headers=_headers(arrival, exact.get("headers")),
        **found,
    )


def native_of(arrival: ServiceBusArrival) -> str | None:
    """Which properties of a message that another program sent are numbers or truth values."""
    typed = [
        key
        for key, value in arrival.parcel.headers.items()
        if not isinstance(value, str) and key not in _OURS and _resendable(value) is value
    ]
    return json.dumps({_SERVICEBUS: typed}) if typed else None


def _as_they_came(plain: Mapping[str, str], native: str) -> dict[str, Any]:
    """The properties that were no text, as what they were."""
    found: dict[str, Any] = {}
    try:
        typed = msgspec.convert(json.loads(native)[_SERVICEBUS], list[str])
        for key in typed:
            if key in plain and key not in names.REJECTION_NAMES:
                found[key] = _resendable(msgspec.json.decode(plain[key]))
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found


def attempt_of(arrival: ServiceBusArrival, *, queue: str) -> int:
    """Which attempt this is, from 1: what the service counted, after what it cannot know of, less
    what was handed back untried.
    """
    before = _carried(arrival, ATTEMPTS, ATTEMPTS_OF, queue)
    untried = min(hand_backs_of(arrival, queue=queue), arrival.delivery_count)
    return before + arrival.delivery_count - untried + 1


def hand_backs_of(arrival: ServiceBusArrival, *, queue: str) -> int:
    """How many of the deliveries that the service counts were handed back untried."""
    return _carried(arrival, HANDED_BACK, HANDED_BACK_OF, queue)


def handed_back(count: int, *, queue: str) -> Mapping[str, object]:
    """The properties of a message that says so."""
    return {HANDED_BACK: count, HANDED_BACK_OF: queue}


def _carried(arrival: ServiceBusArrival, name: str, name_of_queue: str, queue: str) -> int:
    """A count that belongs to this queue: a dead letter carries that of another."""
    count = arrival.parcel.headers.get(name)
    # Names of queues are compared without regard to case.
    is_ours = str(arrival.parcel.headers.get(name_of_queue)).lower() == queue.lower()
    return count if is_ours and isinstance(count, int) and count > 0 else 0


def stored_id_of(arrival: ServiceBusArrival) -> str:
    """What names a stored message: the same for its retries, another one for a copy."""
    stored = arrival.parcel.headers.get(STORED_ID)
    return stored if isinstance(stored, str) and stored else str(arrival.sequence)


def _service_id(arrival: ServiceBusArrival) -> str:
    """The service's id of a message, or what stands for it at every delivery where it has none."""
    given_ms = round((arrival.enqueued_at_s or 0.0) * 1000)
    return arrival.parcel.properties.get("message_id") or f"sb-{arrival.sequence}-{given_ms}"


def _kept(arrival: ServiceBusArrival) -> Mapping[str, Any]:
    """What a copy must say of a message that does not say it itself: its id and its time."""
    exact = _exact(arrival.parcel.headers.get(EXACT))
    if exact:
        return exact
    message = decode(arrival)
    return {"id": message.id, "created_at_s": message.created_at_s, "group": message.group}


def _group(parcel: ServiceBusParcel, exact: Mapping[str, Any]) -> str | None:
    if exact:
        return text_or_none(exact.get("group"))
    return None if parcel.session_id is None else group_of(parcel.session_id)


def _headers(arrival: ServiceBusArrival, odd: object) -> dict[str, str]:
    found = _death(arrival)
    for key, value in arrival.parcel.headers.items():
        if key not in _OURS:
            found[key] = value if isinstance(value, str) else _text(value)
    if isinstance(odd, Mapping):
        found.update((key, value) for key, value in odd.items() if isinstance(value, str))
    return found


def _death(arrival: ServiceBusArrival) -> dict[str, str]:
    """In our words, why the service itself has dead-lettered a message (R21)."""
    reason = arrival.parcel.headers.get(DEAD_REASON)
    if reason is None:
        return {}
    detail = arrival.parcel.headers.get(DEAD_DETAIL)
    return {
        names.ORIGINAL_TOPIC: arrival.dead_letter_source or "",
        names.REJECTION_REASON: RejectionReason.DELIVERY_ERROR.value,
        names.REJECTION_DETAIL: f"Service Bus: {reason}" + (f": {detail}" if detail else ""),
    }


def _is_plain(key: str, text: str) -> bool:
    if not key or key in _OURS or key.startswith(("pump", "x-opt-")):
        return False
    return _is_plain_text(key) and _is_plain_text(text)


def _is_plain_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return len(text) <= MAX_TEXT_CHARS


def _exact(text: object) -> Mapping[str, Any]:
    found = read_exact(text)
    # Nothing of ours is without an id.
    is_ours = isinstance(found.get("id"), str) and found["id"]
    return found if is_ours else {}


def _resendable(value: object) -> object:
    """What arrived, as the SDK can send it: it takes octets for text, and no large number."""
    is_large = isinstance(value, int) and not -_MAX_INT <= value < _MAX_INT
    return value if isinstance(value, str | int | float) and not is_large else _text(value)


def _text(value: object) -> str:
    """A foreign property's value as text, its times in UTC."""
    return foreign_text(value.astimezone(UTC) if isinstance(value, datetime) else value)
