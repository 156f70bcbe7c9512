"""Queue facts: what must be known of a queue before it is received from, asked for once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from pump.clock import Clock

from .calls import NANOSECONDS, ApiError, JetStream, fault_of
from .errors import CONSUMER_EXISTS, CONSUMER_NAME_TAKEN, CONSUMER_NOT_FOUND
from .limits import GRACE_S
from .names import CONSUMER, QueueNames
from .queue_settings import DEAD_LETTER_QUEUE, MAX_RECEIVE_COUNT, SESSIONS, QueueSettings

GOOD_FOR_S: Final = 30.0
"""How long facts are believed."""


@attrs.frozen(kw_only=True)
class QueueFacts:
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
    something does not fit: somebody may have changed the queue.
    """

    def __init__(self, api: JetStream, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._facts: dict[str, tuple[float, QueueFacts]] = {}

    def forget(self, queue: str) -> None:
        """Ask again next time."""
        self._facts.pop(queue, None)

    async def facts(self, settings: QueueSettings) -> QueueFacts:
        """Of a queue that exists; its consumer is made if it is missing. `QueueNotFound`."""
        queue, now_s = settings.names.queue, self._clock.now_s()
        asked_at_s, found = self._facts.get(queue, (0.0, None))
        if found is None or now_s - asked_at_s >= GOOD_FOR_S:
            found = await self._ask(settings)
            self._facts[queue] = now_s, found
        return found

    async def _ask(self, settings: QueueSettings) -> QueueFacts:
        names = settings.names
        stream = await self._api.call(f"STREAM.INFO.{names.stream}", queue=names.queue)
        consumer = await self._consumer(settings)
        return facts_of(stream, consumer)

    async def _consumer(self, settings: QueueSettings) -> Mapping[str, Any]:
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


async def make_consumer(api: JetStream, settings: QueueSettings) -> None:
    """Make the shared consumer, unless there is one."""
    names = settings.names
    body = {"stream_name": names.stream, "action": "create", "config": settings.consumer()}
    try:
        await api.ask(f"CONSUMER.CREATE.{names.stream}.{CONSUMER}", body)
    except ApiError as error:
        if error.error_code not in (CONSUMER_EXISTS, CONSUMER_NAME_TAKEN):
            raise fault_of(error, names.queue) from error


def facts_of(stream: Mapping[str, Any], consumer: Mapping[str, Any]) -> QueueFacts:
    """Read the answers about a stream and its consumer."""
    config, shared = stream["config"], consumer["config"]
    kept = config.get("metadata") or {}
    limit = kept.get(MAX_RECEIVE_COUNT, "")
    at_once = shared.get("max_ack_pending", -1)
    ack_wait_s = shared.get("ack_wait", 0) / NANOSECONDS
    return QueueFacts(
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
