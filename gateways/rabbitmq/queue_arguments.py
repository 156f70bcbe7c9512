"""The arguments a queue is declared with: what RabbitMQ compares when it is declared again. Pure.

Every queue is a quorum queue: it counts deliveries, and survives the loss of a node. With
`max_receive_count` the broker itself dead-letters at that many deliveries, also when consumers
die; it does so without losing anything (at-least-once), which needs `x-overflow`. Of a queue with
sessions it is those of the sessions that do so: nobody tries what waits to be sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec

from .connection import numbers

DELIVERY_LIMIT = "x-delivery-limit"
MINUTE_MS = 60 * 1000
DAY_MS = 24 * 60 * MINUTE_MS
SESSIONS = "sessions"
_OPTIONS = ("arguments", SESSIONS)


def arguments_of(spec: QueueSpec, *, server: str) -> dict[str, Any]:
    """The arguments of a queue; `UnsupportedOperation` for what RabbitMQ cannot be."""
    if has_sessions(spec):
        spec = attrs.evolve(spec, max_receive_count=None, dead_letter_queue=None)
    return session_arguments(spec, server=server)


def session_arguments(spec: QueueSpec, *, server: str) -> dict[str, Any]:
    """The arguments of a queue, or of each of its sessions' where it has any."""
    _check_order(spec)
    arguments: dict[str, Any] = {"x-queue-type": "quorum", **_own(spec.options)}
    if numbers(server) >= (4,):
        # RabbitMQ 4 drops what was delivered 20 times, unless it is told not to.
        arguments.setdefault(DELIVERY_LIMIT, -1)
    if spec.max_receive_count is not None and spec.dead_letter_queue is not None:
        arguments |= {
            # It counts how often a message was taken back.
            DELIVERY_LIMIT: spec.max_receive_count - 1,
            **dead_lettering_to(spec.dead_letter_queue),
        }
    return arguments


def has_sessions(spec: QueueSpec) -> bool:
    """Whether a queue's messages are to be sorted by their groups."""
    asked = spec.options.get(SESSIONS, False)
    if not isinstance(asked, bool):
        raise ConfigurationError("Subscription.options", asked, "sessions is True or False")
    return asked


def delay_arguments(queue: str, ttl_ms: int, *, server: str) -> dict[str, Any]:
    """Of a queue whose messages go on to `queue` after so long. It is removed, with what is in it,
    when nobody has used it for a day longer than that, so it is used in good time.
    """
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": ttl_ms,
        "x-expires": ttl_ms + DAY_MS,
        # Its first message is looked at whenever it is used.
        **({DELIVERY_LIMIT: -1} if numbers(server) >= (4,) else {}),
        **dead_lettering_to(queue),
    }


def scratch_arguments() -> dict[str, Any]:
    """Of a queue that is removed at once, by the broker where its maker has died."""
    return {"x-queue-type": "quorum", "x-expires": MINUTE_MS}


def dead_lettering_to(queue: str) -> dict[str, Any]:
    """Dead-lettering that keeps a message until the other queue has confirmed it."""
    return {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _own(options: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in options:
        if key not in _OPTIONS:
            raise ConfigurationError(
                "Subscription.options", key, f"the amqp gateway knows: {', '.join(_OPTIONS)}"
            )
    own = options.get("arguments", {})
    if not isinstance(own, Mapping):
        raise ConfigurationError(
            "Subscription.options", own, "arguments is a mapping, such as {'x-max-length': 1000}"
        )
    return own


def _check_order(spec: QueueSpec) -> None:
    if spec.ordering is not OrderingMode.FIFO:
        raise UnsupportedOperation(
            "amqp",
            f"newest first on queue {spec.name!r}",
            "RabbitMQ's queues are oldest first",
        )
    if spec.ordering_guarantee:
        raise UnsupportedOperation(
            "amqp",
            f"strict order on queue {spec.name!r}",
            "RabbitMQ delivers a delayed retry after its successors; make the queue with "
            "options={'sessions': True} and accept sessions, which keep the order of their group, "
            "or use another gateway",
        )
