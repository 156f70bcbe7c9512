"""Names of the queues that we keep beside a queue, and the steps in which delays are counted.
Pure.

A delay is a stay in a queue whose messages all live equally long and are then dead-lettered to
where they belong. A time to live of each message would not do: RabbitMQ looks at the head only.
So there is one queue for each step of delay, and steps are a sixteenth apart at most.
"""

from __future__ import annotations

import hashlib
import re
from math import ceil
from typing import Final

from pump.capabilities import Capabilities
from pump.errors import ConfigurationError

from .settings import RabbitMQSettings

LEAST_STEP_MS = 10
_STEPS_BITS = 4
_NAME = re.compile(r"[a-zA-Z0-9\-_.:@#,/+ ]+")
"""What the SDK lets through; AMQP itself forbids little."""
_PLAIN = re.compile(r"[a-zA-Z0-9\-_.:@,/+ ]{1,100}")


def legal_name(queue: str) -> str:
    """The name itself; `ConfigurationError` when the SDK would not send it."""
    if not _NAME.fullmatch(queue) or len(queue) > MAX_NAME_BYTES:
        remedy = f"use 1 to {MAX_NAME_BYTES} letters, digits, spaces and any of -_.:@#,/+"
        raise ConfigurationError("queue", queue, remedy)
    return queue


def checked_name(queue: str) -> str:
    """The name itself; `ConfigurationError` when the SDK would not send it, or the broker keeps
    such names for itself.
    """
    if legal_name(queue).startswith("amq."):
        raise ConfigurationError("queue", queue, "RabbitMQ keeps names with `amq.` for itself")
    return queue


def beside(queue: str, purpose: str) -> str:
    """The name of a queue of ours beside this one: `orders.delay.1024`."""
    name = f"{queue}.{purpose}"
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return f"pump.{hashlib.sha256(queue.encode()).hexdigest()}.{_shortened(purpose)}"


def step_ms(delay_s: float) -> int:
    """The step of a delay: never shorter, and by a sixteenth longer at most (or 10 ms)."""
    # A microsecond less, so that 0.1 + 0.2 is no step above 0.3.
    wanted_ms = ceil(delay_s * 1000 - 1e-3)
    width = max(LEAST_STEP_MS, (1 << max(wanted_ms, 1).bit_length() - 1) >> _STEPS_BITS)
    return max(1, ceil(wanted_ms / width)) * width


def delay_queue(queue: str, ttl_ms: int) -> str:
    """Where messages for `queue` stay that long."""
    return beside(queue, f"delay.{ttl_ms}")


def sessions_name(queue: str) -> str:
    """Where the names of the sessions' queues are kept."""
    return beside(queue, "sessions")


def session_queue(queue: str, group: str) -> str:
    """Where the messages of one group wait until a session of it is accepted."""
    return beside(queue, f"session{_token(group)}")


def session_attempts(queue: str, group: str) -> str:
    """Where is kept which deliveries of a session's messages count as no attempt."""
    return beside(queue, f"attempts{_token(group)}")


def session_lock(queue: str, group: str) -> str:
    """What exists for as long as the session of this group is held."""
    return beside(queue, f"lock{_token(group)}")


def _token(group: str) -> str:
    """A group as part of a name: itself where that can be, and its hash where not."""
    if _PLAIN.fullmatch(group):
        return f":{group}"
    return f"#{hashlib.sha256(group.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _shortened(purpose: str) -> str:
    if len(purpose.encode()) <= 64:
        return purpose
    return hashlib.sha256(purpose.encode("utf-8", "surrogatepass")).hexdigest()


# What RabbitMQ can do through us, and the limits it has or we set.

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
