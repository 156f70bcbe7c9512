"""Queue settings: what a `QueueSpec` means at Service Bus, and where an existing queue differs.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import attrs

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec, Subscription

from .names import (
    MAX_DELIVERY_COUNT,
    MAX_LOCK,
    MAX_WINDOW,
    MIN_LOCK,
    MIN_WINDOW,
    checked_name,
    parent_of,
    sendable_name,
)

_WINDOW: Final = "deduplication_window"
_SESSIONS: Final = "sessions"
_PARTITIONED: Final = "partitioned"
_MAX_SIZE: Final = "max_size_in_megabytes"
_OPTIONS: Final = (_WINDOW, _SESSIONS, _PARTITIONED, _MAX_SIZE)


@attrs.frozen(kw_only=True)
class ServiceBusQueueSettings:
    """How one queue is made."""

    name: str
    lock: timedelta = timedelta(seconds=60)
    has_sessions: bool = False
    is_partitioned: bool = False
    max_size_in_megabytes: int | None = None
    window: timedelta | None = None
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    is_bare: bool = False
    """Nothing more was asked for than that the queue exists."""

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> ServiceBusQueueSettings:
        """Translate a spec; `ConfigurationError` or `UnsupportedOperation` where the service
        cannot.
        """
        checked_name(spec.name)
        _check_order(spec)
        _check_redrive(spec)
        options = dict(spec.options)
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise ConfigurationError(
                "QueueSpec.options", unknown, f"this gateway knows {', '.join(_OPTIONS)}"
            )
        lease = timedelta(seconds=60) if spec.lease is None else spec.lease
        return cls(
            name=spec.name,
            lock=min(max(lease, MIN_LOCK), MAX_LOCK),
            has_sessions=_flag(_SESSIONS, options.get(_SESSIONS, False)),
            is_partitioned=_flag(_PARTITIONED, options.get(_PARTITIONED, False)),
            max_size_in_megabytes=_size(options.get(_MAX_SIZE)),
            window=_window(options.get(_WINDOW)),
            max_receive_count=spec.max_receive_count,
            dead_letter_queue=spec.dead_letter_queue if spec.max_receive_count else None,
            is_bare=spec == QueueSpec(name=spec.name),
        )

    @property
    def description(self) -> dict[str, Any]:
        """What the queue is made with, in the words of the SDK."""
        said: dict[str, Any] = {
            "lock_duration": self.lock,
            "requires_session": self.has_sessions,
            "enable_partitioning": self.is_partitioned,
            "max_size_in_megabytes": self.max_size_in_megabytes,
            "requires_duplicate_detection": self.window is not None,
            "duplicate_detection_history_time_window": self.window,
            # Ours to count unless it was asked to: its default of ten would cut retries short.
            "max_delivery_count": self.max_receive_count or MAX_DELIVERY_COUNT,
            # Otherwise what expires is gone.
            "dead_lettering_on_message_expiration": True,
            "forward_dead_lettered_messages_to": self.dead_letter_queue,
        }
        return {name: value for name, value in said.items() if value is not None}

    def differences(self, found: Mapping[str, Any]) -> list[str]:
        """Say in words where an existing queue is not what was asked for. Its lock's duration
        never counts: a lease has an end of its own.
        """
        return [] if self.is_bare else list(self._differences(found))

    def _differences(self, found: Mapping[str, Any]) -> Iterator[str]:
        has_sessions = bool(found.get("requires_session"))
        if has_sessions != self.has_sessions:
            yield f"sessions is {has_sessions}, asked for {self.has_sessions}"
        has_window = bool(found.get("requires_duplicate_detection"))
        window = found.get("duplicate_detection_history_time_window") if has_window else None
        if window != self.window:
            yield f"{_WINDOW} is {window}, asked for {self.window}"
        count = found.get("max_delivery_count")
        if self.max_receive_count is not None and count != self.max_receive_count:
            yield f"max_delivery_count is {count}, asked for {self.max_receive_count}"
        # The service may answer with the whole address of the queue.
        target = str(found.get("forward_dead_lettered_messages_to") or "").rsplit("/", 1)[-1]
        if self.dead_letter_queue is not None and target.lower() != self.dead_letter_queue.lower():
            yield f"dead letters go to {target!r}, asked for {self.dead_letter_queue!r}"


def check_subscription(subscription: Subscription) -> None:
    """Raise what keeps this subscription from ever working here."""
    for spec in subscription.queue_specs():
        ServiceBusQueueSettings.from_spec(spec)
    for target in (subscription.dead_letter_queue, subscription.invalid_queue):
        if target is not None:
            sendable_name(target)


def _check_order(spec: QueueSpec) -> None:
    if spec.ordering is OrderingMode.LIFO:
        raise UnsupportedOperation(
            "sb",
            "ordering=lifo",
            "a queue gives the oldest first; use the memory, local or s3 gateway",
        )
    if spec.ordering_guarantee:
        raise UnsupportedOperation(
            "sb",
            "ordering_guarantee",
            "only a session keeps an order across retries; make the queue with "
            "options={'sessions': True}, send with a group, and accept sessions",
        )


def _check_redrive(spec: QueueSpec) -> None:
    limit = spec.max_receive_count
    if limit is not None and not 1 <= limit <= MAX_DELIVERY_COUNT:
        raise ConfigurationError(
            "QueueSpec.max_receive_count", limit, f"use 1 to {MAX_DELIVERY_COUNT}"
        )
    if spec.dead_letter_queue is not None:
        sendable_name(spec.dead_letter_queue)
    if limit is not None and parent_of(spec.name) is not None:
        raise ConfigurationError(
            "QueueSpec.max_receive_count", limit, "dead letters are not dead-lettered again"
        )


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"options[{name!r}]", value, "use True or False")
    return value


def _size(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise ConfigurationError(f"options[{_MAX_SIZE!r}]", value, "use a whole number above zero")


def _window(value: object) -> timedelta | None:
    if value is None:
        return None
    window = value
    if isinstance(value, int | float) and not isinstance(value, bool):
        window = timedelta(seconds=value)
    if not isinstance(window, timedelta) or not MIN_WINDOW <= window <= MAX_WINDOW:
        raise ConfigurationError(
            f"options[{_WINDOW!r}]", value, "use a timedelta, or seconds, from 20 s to 7 days"
        )
    return window
