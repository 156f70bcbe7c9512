"""What Service Bus can do through us, and the limits it has."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pump.capabilities import Capabilities

from .settings import ServiceBusSettings

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
