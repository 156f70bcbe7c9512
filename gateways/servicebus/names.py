"""Names: what Service Bus calls a queue, its dead letters and its sessions. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256
from typing import Final

from pump.capabilities import Capabilities
from pump.errors import ConfigurationError, UnsupportedOperation

from .settings import ServiceBusSettings

DEAD_LETTERS: Final = "/$DeadLetterQueue"
"""Behind a queue's name it is the queue of what Service Bus itself has taken out."""
NO_GROUP: Final = "pump~"
"""The session of messages without a group, on queues where each must have one."""
_HASHED: Final = "pump~sha256~"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")


def checked_name(queue: str) -> str:
    """The name itself; `ConfigurationError` when no queue can have it."""
    own = parent_of(queue) or queue
    if len(own) > MAX_NAME_CHARS or not _NAME.fullmatch(own):
        raise ConfigurationError(
            "queue",
            queue,
            f"use 1 to {MAX_NAME_CHARS} letters, digits, '.', '-', '_' and '/', with a letter or "
            f"a digit at both ends",
        )
    return queue


def parent_of(queue: str) -> str | None:
    """The queue whose dead letters this name means; None for a queue of its own."""
    if queue.lower().endswith(DEAD_LETTERS.lower()):
        return queue[: -len(DEAD_LETTERS)]
    return None


def sendable_name(queue: str) -> str:
    """The name of a queue that can be sent to."""
    if parent_of(checked_name(queue)) is not None:
        raise UnsupportedOperation(
            "sb",
            f"sending to {queue!r}",
            "only Service Bus itself moves messages there; name a queue of your own",
        )
    return queue


def session_id_of(group: str | None) -> str | None:
    """The session of a group: its name, or the name's hash where that is too long."""
    if group is None:
        return None
    if not group:
        return NO_GROUP
    is_odd = group.startswith(NO_GROUP) or len(group) > MAX_ID_CHARS
    if not is_odd and group.isprintable() and group == group.strip():
        return group
    return _HASHED + sha256(group.encode("utf-8", "surrogatepass")).hexdigest()


def group_of(session_id: str) -> str | None:
    """The group of a session; None where only the messages themselves can tell."""
    if session_id == NO_GROUP:
        return ""
    return None if session_id.startswith(_HASHED) else session_id


def legal_id(text: str) -> str:
    """A de-duplication id as Service Bus compares it: 1 to 128 characters, or its hash."""
    if 0 < len(text) <= MAX_ID_CHARS and text.isascii() and text.isprintable():
        return text
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# What Service Bus can do through us, and the limits it has.

MIN_LOCK: Final = timedelta(seconds=5)
MAX_LOCK: Final = timedelta(minutes=5)
"""Of a queue's `LockDuration`. A lease may be shorter or longer: see `leases`."""
MAX_DELIVERY_COUNT: Final = 2_000
"""The most a queue can be set to; it cannot be set to count without end."""
MIN_WINDOW: Final = timedelta(seconds=20)
MAX_WINDOW: Final = timedelta(days=7)
"""Of duplicate detection."""
MAX_NAME_CHARS: Final = 260
MAX_ID_CHARS: Final = 128
"""Of a message's id and of a session's."""
SEND_BATCH: Final = 100
RECEIVE_BATCH: Final = 100
SETTLE_BATCH: Final = 100
ENVELOPE_BYTES: Final = 4_096
"""Kept free beside a body for what else a message says."""
MAX_PROPERTIES_BYTES: Final = 64 * 1_024
"""Of all that is not the body."""
MAX_TRIES: Final = 5
"""How often a request is made that the service is too busy for."""


def max_body_bytes(settings: ServiceBusSettings) -> int:
    """The largest body, with a few headers beside it."""
    return settings.max_message_bytes - ENVELOPE_BYTES


def capabilities_with(settings: ServiceBusSettings) -> Capabilities:
    """The capabilities on a namespace of this tier."""
    return Capabilities(
        gateway="sb",
        # Order within a group is kept by sessions only, and sessions are accepted, not pumped.
        has_groups=False,
        has_deduplication=True,
        has_sessions=True,
        has_session_choice=True,
        has_native_redrive=True,
        # Service Bus counts what is handed back; a property of the message says how often it was.
        has_uncounted_abandon=True,
        has_peek=True,
        has_purge=True,
        # What others have locked counts as visible, and counts lag behind.
        has_exact_stats=False,
        is_durable=True,
        is_shared=True,
        spans_machines=True,
        max_body_bytes=max_body_bytes(settings),
        receive_batch=RECEIVE_BATCH,
        settle_batch=SETTLE_BATCH,
        settle_linger_s=0.005,
        max_settle_calls=1,
        # All receives of a queue share one link.
        max_pollers=1,
        # A copy is scheduled; a purge receives; a lease that is not the queue's own is renewed.
        emulated=frozenset({"max_defer_s", "has_purge", "has_uncounted_abandon"}),
    )
