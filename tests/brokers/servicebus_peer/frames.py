"""What stands in AMQP's frames, read and written. Proton does most of it."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from .entities import Stored, unix_time_s

# Only in the environment that runs this; it has no types.
proton: Any = import_module("proton")
cproton: Any = import_module("cproton")

SESSION_FILTER = "com.microsoft:session-filter"
_BEHIND = (
    "For more information on exception types and proper exception handling, please refer to "
    "https://aka.ms/ServiceBusExceptions . TrackingId:18150524-0000-4d27-9a10-000000000000_B10, "
    "SystemTracker:G18:278550257:receiver-link, Timestamp:2026-11-17T12:24:18 "
    "TrackingId:f0ea5fd9868600000000000000000000_G18, SystemTracker:gateway7, "
    "Timestamp:2026-11-17T12:24:18"
)


def encoded(stored: Stored) -> bytes:
    """A message as it is given out: what the sender wrote, and what Service Bus adds."""
    message = proton.Message()
    message.decode(stored.message)
    message.delivery_count = stored.delivery_count
    annotations = dict(message.annotations or {})
    added: dict[str, Any] = {
        "x-opt-sequence-number": stored.sequence,
        "x-opt-enqueued-time": proton.timestamp(int(stored.enqueued_at * 1000)),
    }
    if stored.token is not None:
        # What a session locks is locked with it.
        until = min(stored.locked_until, unix_time_s() + 3600)
        added["x-opt-locked-until"] = proton.timestamp(int(until * 1000))
    if stored.came_from is not None:
        added["x-opt-deadletter-source"] = stored.came_from
    annotations.update({proton.symbol(name): value for name, value in added.items()})
    message.annotations = annotations
    if stored.dead_because is not None:
        reason, detail = stored.dead_because
        message.properties = {
            **(message.properties or {}),
            "DeadLetterReason": reason,
            "DeadLetterErrorDescription": detail,
        }
    return bytes(message.encode())


def at_length(description: str) -> str:
    """As Azure says it: the SDK puts the condition behind all of this."""
    return f"{description}. {_BEHIND}"


def delivery_tag(delivery: Any) -> bytes:
    """Proton itself reads a tag as text, which a lock token is not."""
    tag = cproton.lib.pn_delivery_tag(delivery._impl)
    return bytes(cproton.ffi.unpack(tag.start, tag.size))


def path_of(address: str | None) -> str:
    """The entity that an address names."""
    text = address or ""
    return urlsplit(text).path.strip("/") if "://" in text else text.strip("/")


def session_filter(link: Any) -> tuple[str | None] | None:
    """The session that a link asks for, in a tuple; (None,) for the next; None for no session."""
    data = link.remote_source.filter
    data.rewind()
    if not data.next():
        return None
    found = data.get_object()
    for name, value in dict(found or {}).items():
        if str(name) == SESSION_FILTER:
            plain = getattr(value, "value", value)
            return (None if plain is None else str(plain),)
    return None


def patience_s(link: Any) -> float:
    """How long a link is willing to wait for a session."""
    said = {str(name): value for name, value in dict(link.remote_properties or {}).items()}
    return float(said.get("com.microsoft:timeout", 60_000)) / 1000
