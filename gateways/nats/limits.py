"""Limits of JetStream, and what follows for the pump."""

from __future__ import annotations

from typing import Final

from pump.capabilities import Capabilities

MINIMUM_SERVER: Final = (2, 10)
"""Metadata on streams, several filters on a consumer, the server's time in its answers."""
SCHEDULING_SERVER: Final = (2, 12)
"""The first that keeps a message until its time (`Nats-Schedule`)."""
DEFAULT_MAX_PAYLOAD: Final = 1_048_576
"""A server's `max_payload` unless its configuration says otherwise."""
DEFAULT_LEASE_S: Final = 30.0
GRACE_S: Final = 0.25
"""How much longer the server waits than a lease lasts: it takes a late ack for a good one, so
what was settled in time has to arrive before anybody else is given the message."""
FORGETFUL_S: Final = 1.0
"""How long after a delivery a server that is killed may forget it; seen were some 50 ms."""
COARSE_S: Final = 1.5
"""How much sooner than it said a server that was restarted ends a lease or a deferral: it writes
their times down in whole seconds. Seen were 1.35 s."""
MAX_DEFERRALS: Final = 10_000
"""How many deferrals of a queue are remembered, to be told again to a server that restarted."""
MAX_WAITING: Final = 16_384
"""Receives that may wait on one queue at once, over all processes."""
MAX_IN_FLIGHT: Final = 512
MAX_IN_FLIGHT_BYTES: Final = 4 * 1_048_576
"""How much is published ahead of the server's confirmations."""

NATS = Capabilities(
    gateway="nats",
    has_strict_order=True,
    # Order within a group is kept by sessions only; a shared consumer knows nothing of groups.
    has_groups=False,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=True,
    # How often a message was handed back is kept beside its stream.
    has_uncounted_abandon=True,
    # By the delivery count of the server, moved by the consumer that meets it.
    has_native_redrive=True,
    has_peek=True,
    has_purge=True,
    # Their sum is exact. A lease that has run out counts as in flight until somebody receives.
    has_exact_stats=False,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_body_bytes=DEFAULT_MAX_PAYLOAD,
    receive_batch=256,
    settle_batch=MAX_IN_FLIGHT,
    settle_linger_s=0.001,
    max_settle_calls=4,
    max_pollers=4,
    emulated=frozenset(
        {"has_sessions", "has_session_choice", "has_native_redrive", "has_uncounted_abandon"}
    ),
)
