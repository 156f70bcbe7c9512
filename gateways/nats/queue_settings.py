"""Queue settings: what a `QueueSpec` means at NATS, and where an existing queue differs. Pure.

What NATS has no setting for (where dead letters go, after how many deliveries) is written into
the stream's metadata, so that every consumer goes by it, also one that was not told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from pump.capabilities import OrderingMode
from pump.clock import Clock
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec

from .._kit.queues import check_redrive
from .connection import NANOSECONDS, ApiError, JetStream, fault_of, nanoseconds
from .errors import CONSUMER_EXISTS, CONSUMER_NAME_TAKEN, CONSUMER_NOT_FOUND
from .names import CONSUMER, DEFAULT_LEASE_S, GRACE_S, MAX_WAITING, NATS, QueueNames

QUEUE: Final = "pumphouse.queue"
MAX_RECEIVE_COUNT: Final = "pumphouse.max_receive_count"
DEAD_LETTER_QUEUE: Final = "pumphouse.dead_letter_queue"
SESSIONS: Final = "pumphouse.sessions"

_DEDUPLICATION_WINDOW: Final = "deduplication_window"
_DEFAULT_WINDOW_S: Final = 300.0
_MIN_WINDOW_S: Final = 0.1
_OPTIONS: Final = (_DEDUPLICATION_WINDOW, "replicas", "sessions", "subjects")


@attrs.frozen(kw_only=True)
class NatsQueueSettings:
    """How one queue is made."""

    names: QueueNames
    is_strict: bool = False
    has_sessions: bool = False
    lease_s: float = DEFAULT_LEASE_S
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    deduplication_window_s: float = _DEFAULT_WINDOW_S
    replicas: int | None = None
    subjects: tuple[str, ...] = ()
    is_bare: bool = False
    """Nothing more was asked for than that the queue exists."""

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> NatsQueueSettings:
        """Translate a spec; `ConfigurationError` or `UnsupportedOperation` where NATS cannot."""
        if not spec.name.strip():
            raise ConfigurationError("QueueSpec.name", spec.name, "name the queue")
        if spec.ordering is OrderingMode.LIFO:
            raise UnsupportedOperation(
                NATS.gateway,
                "ordering=lifo",
                "a stream is read oldest first; use the memory, local or s3 gateway",
            )
        check_redrive(spec)
        options = dict(spec.options)
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise ConfigurationError(
                "QueueSpec.options", unknown, f"this gateway knows {', '.join(_OPTIONS)}"
            )
        lease = spec.lease
        return cls(
            names=QueueNames.of(spec.name),
            is_strict=spec.ordering_guarantee,
            has_sessions=_flag(options.get("sessions", False)),
            lease_s=DEFAULT_LEASE_S if lease is None else lease.total_seconds(),
            max_receive_count=spec.max_receive_count,
            dead_letter_queue=spec.dead_letter_queue if spec.max_receive_count else None,
            deduplication_window_s=_window_s(options.get(_DEDUPLICATION_WINDOW)),
            replicas=_replicas(options.get("replicas")),
            subjects=_subjects(options.get("subjects", ())),
            is_bare=spec == QueueSpec(name=spec.name),
        )

    @property
    def metadata(self) -> dict[str, str]:
        """What the stream remembers for us."""
        kept: dict[str, object | None] = {
            QUEUE: self.names.queue,
            MAX_RECEIVE_COUNT: self.max_receive_count,
            DEAD_LETTER_QUEUE: self.dead_letter_queue,
            SESSIONS: "true" if self.has_sessions else None,
        }
        return {name: str(value) for name, value in kept.items() if value is not None}

    def stream(self, *, replicas: int, can_schedule: bool) -> dict[str, Any]:
        """The configuration of its stream: a message that is acked is removed."""
        config: dict[str, Any] = {
            "name": self.names.stream,
            "subjects": [*self.names.subjects, *self.subjects],
            "retention": "workqueue",
            "storage": "file",
            "num_replicas": self.replicas or replicas,
            "duplicate_window": nanoseconds(self.deduplication_window_s),
            "metadata": self.metadata,
        }
        if can_schedule:
            config["allow_msg_schedules"] = True
        return config

    def consumer(self) -> dict[str, Any]:
        """The configuration of the consumer that all receivers share.

        The server counts deliveries without end: one that it gave up on would stay in the stream
        for ever, and no consumer would be given it.
        """
        return {
            "durable_name": CONSUMER,
            "name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": nanoseconds(self.lease_s + GRACE_S),
            "max_deliver": -1,
            "max_ack_pending": 1 if self.is_strict else -1,
            "max_waiting": MAX_WAITING,
            "filter_subjects": self.filters,
        }

    @property
    def filters(self) -> list[str]:
        """What the shared consumer sees. Where there are sessions, groups are theirs."""
        groups = [] if self.has_sessions else [self.names.groups]
        return [self.names.stream, *groups, *self.subjects]

    def differences(
        self, stream: Mapping[str, Any], consumer: Mapping[str, Any] | None
    ) -> list[str]:
        """Say in words where an existing queue is not what was asked for. Its lease never
        counts: a consumer of another lease sets its own with each receive.
        """
        return list(self._differences(stream, consumer or {}))

    def _differences(self, stream: Mapping[str, Any], consumer: Mapping[str, Any]) -> Iterator[str]:
        if stream.get("retention") != "workqueue":
            yield f"its retention is {stream.get('retention')}, not workqueue"
        if self.is_bare:
            return
        if order := self.order_difference(consumer):
            yield order
        kept = stream.get("metadata") or {}
        for key in (MAX_RECEIVE_COUNT, DEAD_LETTER_QUEUE, SESSIONS):
            if kept.get(key) != self.metadata.get(key):
                name = key.removeprefix("pumphouse.")
                yield f"{name} is {kept.get(key)}, asked for {self.metadata.get(key)}"
        missing = sorted(set(self.subjects) - set(stream.get("subjects") or ()))
        if missing:
            yield f"it has no subjects {', '.join(missing)}"
        window_s = (stream.get("duplicate_window") or 0) / NANOSECONDS
        if abs(window_s - self.deduplication_window_s) > 1e-6:
            asked = f"{self.deduplication_window_s:g} s"
            yield f"deduplication_window is {window_s:g} s, asked for {asked}"

    def order_difference(self, consumer: Mapping[str, Any]) -> str:
        """Where the order is not the one asked for; empty when it is, or no consumer exists yet."""
        if not consumer or (consumer.get("max_ack_pending") == 1) == self.is_strict:
            return ""
        has = "one message" if consumer.get("max_ack_pending") == 1 else "many messages"
        return f"it has {has} in flight at a time, ordering_guarantee={self.is_strict} needs other"


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError("QueueSpec.options['sessions']", value, "use True or False")
    return value


def _replicas(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5:
        raise ConfigurationError("QueueSpec.options['replicas']", value, "use 1 to 5")
    return value


def _subjects(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ConfigurationError("QueueSpec.options['subjects']", value, "give a list of subjects")
    if not all(isinstance(each, str) and each for each in value):
        raise ConfigurationError("QueueSpec.options['subjects']", value, "give subjects as text")
    return tuple(value)


def _window_s(value: object) -> float:
    if value is None:
        return _DEFAULT_WINDOW_S
    if isinstance(value, timedelta):
        value = value.total_seconds()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value < _MIN_WINDOW_S:  # type: ignore[operator]
        raise ConfigurationError(
            f"QueueSpec.options[{_DEDUPLICATION_WINDOW!r}]",
            value,
            f"use seconds or a timedelta, {_MIN_WINDOW_S:g} s at least",
        )
    return float(value)  # type: ignore[arg-type]


# Queue facts: what must be known of a queue before it is received from, asked for once.

GOOD_FOR_S: Final = 30.0
"""How long facts are believed."""


@attrs.frozen(kw_only=True)
class NatsQueueFacts:
    """How a queue is set up, as far as its users must know."""

    lease_s: float
    """What the server grants by itself; other leases are asked for message by message."""
    is_bounded: bool
    """Only so many messages may be in flight; one, where order is strict."""
    is_strict: bool
    has_sessions: bool
    max_receive_count: int | None
    dead_letter_queue: str | None


class KnownQueues:
    """The facts of the queues that were asked about. Asked for again now and then, and when
    something does not fit: another client may have changed the queue.
    """

    def __init__(self, api: JetStream, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._facts: dict[str, tuple[float, NatsQueueFacts]] = {}

    def forget(self, queue: str) -> None:
        """Ask again next time."""
        self._facts.pop(queue, None)

    async def facts(self, settings: NatsQueueSettings) -> NatsQueueFacts:
        """Of a queue that exists; its consumer is made if it is missing. `QueueNotFound`."""
        queue, now_s = settings.names.queue, self._clock.now_s()
        asked_at_s, found = self._facts.get(queue, (0.0, None))
        if found is None or now_s - asked_at_s >= GOOD_FOR_S:
            found = await self._ask(settings)
            self._facts[queue] = now_s, found
        return found

    async def _ask(self, settings: NatsQueueSettings) -> NatsQueueFacts:
        names = settings.names
        stream = await self._api.call(f"STREAM.INFO.{names.stream}", queue=names.queue)
        consumer = await self._consumer(settings)
        return facts_of(stream, consumer)

    async def _consumer(self, settings: NatsQueueSettings) -> Mapping[str, Any]:
        names = settings.names
        try:
            return await consumer_info(self._api, names)
        except ApiError as error:
            if error.error_code != CONSUMER_NOT_FOUND:
                raise fault_of(error, names.queue) from error
        await make_consumer(self._api, settings)
        return await self._api.call(f"CONSUMER.INFO.{names.stream}.{CONSUMER}", queue=names.queue)


async def consumer_info(api: JetStream, names: QueueNames) -> dict[str, Any]:
    """What the server says of the shared consumer; raises `ApiError`."""
    return await api.ask(f"CONSUMER.INFO.{names.stream}.{CONSUMER}")


async def make_consumer(api: JetStream, settings: NatsQueueSettings) -> None:
    """Make the shared consumer, unless there is one."""
    names = settings.names
    body = {"stream_name": names.stream, "action": "create", "config": settings.consumer()}
    try:
        await api.ask(f"CONSUMER.CREATE.{names.stream}.{CONSUMER}", body)
    except ApiError as error:
        if error.error_code not in (CONSUMER_EXISTS, CONSUMER_NAME_TAKEN):
            raise fault_of(error, names.queue) from error


def facts_of(stream: Mapping[str, Any], consumer: Mapping[str, Any]) -> NatsQueueFacts:
    """Read the answers about a stream and its consumer."""
    config, shared = stream["config"], consumer["config"]
    kept = config.get("metadata") or {}
    limit = kept.get(MAX_RECEIVE_COUNT, "")
    at_once = shared.get("max_ack_pending", -1)
    ack_wait_s = shared.get("ack_wait", 0) / NANOSECONDS
    return NatsQueueFacts(
        lease_s=max(ack_wait_s - GRACE_S, 0.0),
        is_bounded=at_once > 0,
        is_strict=at_once == 1,
        has_sessions=kept.get(SESSIONS) == "true",
        max_receive_count=int(limit) if limit.isdigit() else None,
        dead_letter_queue=kept.get(DEAD_LETTER_QUEUE),
    )


def time_s(text: object) -> float | None:
    """A time in the server's words as Unix time; None when it says none."""
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    try:
        # Python reads microseconds, the server writes nanoseconds.
        head, _, fraction = text.rstrip("Z").partition(".")
        whole = datetime.fromisoformat(f"{head}+00:00").timestamp()
        return whole + (float(f"0.{fraction}") if fraction else 0.0)
    except ValueError:
        return None
