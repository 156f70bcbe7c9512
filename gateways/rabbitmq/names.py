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

from pump.errors import ConfigurationError

from .limits import MAX_NAME_BYTES

LEAST_STEP_MS = 10
_STEPS_BITS = 4
_NAME = re.compile(r"[a-zA-Z0-9\-_.:@#,/+ ]+")
"""What the SDK lets through; AMQP itself forbids little."""
_PLAIN = re.compile(r"[a-zA-Z0-9\-_.:@,/+ ]{1,100}")


def checked_name(queue: str) -> str:
    """The name itself; `ConfigurationError` when the SDK would not send it, or the broker keeps
    such names for itself.
    """
    if not _NAME.fullmatch(queue) or len(queue) > MAX_NAME_BYTES:
        remedy = f"use 1 to {MAX_NAME_BYTES} letters, digits, spaces and any of -_.:@#,/+"
        raise ConfigurationError("queue", queue, remedy)
    if queue.startswith("amq."):
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
    """Where the messages of one group wait for whoever accepts it."""
    return beside(queue, f"session{_token(group)}")


def session_lock(queue: str, group: str) -> str:
    """What exists for as long as somebody holds the session of this group."""
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
