"""What RabbitMQ can do through us, and the limits it has or we set."""

from __future__ import annotations

from typing import Final

from pump.capabilities import Capabilities

from .settings import RabbitMQSettings

MAX_DELAY_S: Final = 30 * 24 * 3600.0
"""RabbitMQ counts a time to live in milliseconds of 32 bits: a queue that must outlive its
messages by a day cannot wait for fifty."""
MAX_NAME_BYTES: Final = 255
"""Of a queue; AMQP's short string."""
RECEIVE_BATCH: Final = 500
PUBLISH_BATCH: Final = 500
"""Publishes that wait for their confirms together."""
HEARTBEATS: Final = 3
"""Silent for as many, a peer is taken for dead."""
TIMEOUT_MARGIN_S: Final = 90.0
"""RabbitMQ looks once a minute for deliveries that are over its `consumer_timeout`."""

EMULATED: Final = frozenset(
    {
        "has_sessions",
        "has_session_choice",
        "has_native_redrive",
        "has_lease_expiry",
        "max_delay_s",
        "max_defer_s",
        "max_lease_s",
    }
)
"""By delay queues, a count and a deadline of our own, and a queue for each session."""


def max_lease_s(settings: RabbitMQSettings) -> float:
    """How long one delivery can be kept before the broker closes the channel for it."""
    return max(settings.consumer_timeout_s - TIMEOUT_MARGIN_S, settings.consumer_timeout_s / 2)


def capabilities_with(settings: RabbitMQSettings) -> Capabilities:
    """The capabilities on a broker that is set up like this."""
    return Capabilities(
        gateway="amqp",
        # Order within a group is kept by sessions only; consumers of one queue know no groups.
        has_groups=False,
        has_sessions=True,
        has_session_choice=True,
        has_native_redrive=True,
        has_purge=True,
        # The broker requeues when a connection dies, its heartbeat included; a lease that runs
        # out while we live is handed back by our own timer.
        has_lease_expiry=True,
        is_durable=True,
        is_shared=True,
        spans_machines=True,
        max_delay_s=MAX_DELAY_S,
        max_defer_s=MAX_DELAY_S,
        max_lease_s=max_lease_s(settings),
        max_body_bytes=settings.max_body_bytes,
        receive_batch=RECEIVE_BATCH,
        settle_batch=RECEIVE_BATCH,
        # One round trip settles any number.
        settle_linger_s=0.001,
        max_settle_calls=2,
        # Subscribing and unsubscribing is most of a receive: while one does, another handles.
        max_pollers=2,
        emulated=EMULATED,
    )
