"""The caretaker of NATS queues: makes, checks, lists, looks into and empties them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pump.clock import Clock
from pump.errors import QueueMismatch, QueueNotFound
from pump.message import Message
from pump.observability.log import get_logger
from pump.observability.vocabulary import QUEUE_DIFFERS
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from .connection import ApiError, JetStream, fault_of
from .errors import CONSUMER_NOT_FOUND, STREAM_EXISTS
from .names import SCHEDULING_SERVER, QueueNames
from .pulls import message_in, next_stored
from .queue_settings import (
    QUEUE,
    KnownQueues,
    NatsQueueSettings,
    consumer_info,
    make_consumer,
    time_s,
)

MAX_LOOKS = 8
"""How many queues are asked at once for what they hold."""

_log = get_logger("gateways.nats")


class NatsAdmin:
    """Looks after the queues of one account: the streams that say in their metadata to be one."""

    def __init__(self, api: JetStream, known: KnownQueues, *, clock: Clock) -> None:
        self._api = api
        self._known = known
        self._clock = clock

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """A queue that exists is never changed: creating warns of the differences, validating
        raises them. Another order than the one asked for is always an error.
        """
        settings = NatsQueueSettings.from_spec(spec)
        if make is MakeChannels.CREATE:
            await self._create(settings)
        elif make is MakeChannels.VALIDATE:
            await self._validate(settings)

    async def queues(self) -> Sequence[QueueStats]:
        """Every queue of this account, by name."""
        gate = asyncio.Semaphore(MAX_LOOKS)
        try:
            async with asyncio.TaskGroup() as group:
                looks = [
                    group.create_task(self._stats(names, gate), name="nats stats")
                    async for names in self._names()
                ]
        except ExceptionGroup as failures:
            # The others were cancelled, or failed of the same cause.
            raise failures.exceptions[0] from None
        found = [stats for look in looks if (stats := look.result()) is not None]
        return sorted(found, key=lambda stats: stats.name)

    async def stats(self, queue: str) -> QueueStats:
        """The counts add up to what is there. A lease that ran out, and a deferred message,
        count as in flight until they are received again.
        """
        names = QueueNames.of(queue)
        stream = await self._api.call(
            f"STREAM.INFO.{names.stream}", {"subjects_filter": names.schedules}, queue=queue
        )
        in_flight = await self._in_flight(names)
        # One subject each.
        delayed = int(stream.get("total") or 0)
        state = stream["state"]
        return QueueStats(
            name=queue,
            visible=max(int(state["messages"]) - in_flight - delayed, 0),
            in_flight=in_flight,
            delayed=delayed,
            oldest_age_s=None if delayed else _age_s(stream),
        )

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        """In the order they were stored, those in flight too; not what waits for its time."""
        names = QueueNames.of(queue)
        await self._api.call(f"STREAM.INFO.{names.stream}", queue=queue)
        seen: list[Message] = []
        sequence = 1
        while len(seen) < max_count:
            stored = await next_stored(self._api, names, sequence)
            if stored is None:
                break
            sequence = int(stored["seq"]) + 1
            if not stored["subject"].startswith(names.schedule("")):
                seen.append(message_in(stored, names))
        return seen

    async def purge(self, queue: str) -> int:
        """Exact: visible, in flight and delayed alike."""
        stream = QueueNames.of(queue).stream
        return int((await self._api.call(f"STREAM.PURGE.{stream}", queue=queue))["purged"])

    async def _create(self, settings: NatsQueueSettings) -> None:
        if settings.dead_letter_queue is not None:
            # First, so that there is never a queue whose dead letters have nowhere to go.
            await self._create(
                NatsQueueSettings.from_spec(QueueSpec(name=settings.dead_letter_queue))
            )
        connection = self._api.connection
        await connection.link()
        config = settings.stream(
            replicas=connection.settings.replicas,
            can_schedule=connection.server_version >= SCHEDULING_SERVER,
        )
        self._known.forget(settings.names.queue)
        try:
            await self._api.ask(f"STREAM.CREATE.{settings.names.stream}", config)
        except ApiError as error:
            if error.error_code != STREAM_EXISTS:
                raise fault_of(error, settings.names.queue) from error
        await make_consumer(self._api, settings)
        differences = await self._differences(settings)
        if differences:
            _log.warning(QUEUE_DIFFERS, queue=settings.names.queue, differences=differences)

    async def _validate(self, settings: NatsQueueSettings) -> None:
        if differences := await self._differences(settings):
            raise QueueMismatch(settings.names.queue, "; ".join(differences))
        if settings.dead_letter_queue is not None:
            stream = QueueNames.of(settings.dead_letter_queue).stream
            await self._api.call(f"STREAM.INFO.{stream}", queue=settings.dead_letter_queue)

    async def _differences(self, settings: NatsQueueSettings) -> list[str]:
        names = settings.names
        stream = await self._api.call(f"STREAM.INFO.{names.stream}", queue=names.queue)
        consumer: Mapping[str, Any] | None = None
        try:
            consumer = (await consumer_info(self._api, names))["config"]
        except ApiError as error:
            if error.error_code != CONSUMER_NOT_FOUND:
                raise fault_of(error, names.queue) from error
        if not settings.is_bare and (order := settings.order_difference(consumer or {})):
            raise QueueMismatch(names.queue, order)
        return settings.differences(stream["config"], consumer)

    async def _stats(self, names: QueueNames, gate: asyncio.Semaphore) -> QueueStats | None:
        async with gate:
            try:
                return await self.stats(names.queue)
            except QueueNotFound:
                return None  # deleted since it was listed

    async def _names(self) -> AsyncIterator[QueueNames]:
        async for stream in self._pages("STREAM.LIST", "streams", queue="*"):
            queue = (stream["config"].get("metadata") or {}).get(QUEUE)
            if queue is not None:
                yield QueueNames.of(queue)

    async def _in_flight(self, names: QueueNames) -> int:
        """Over the shared consumer and those of sessions."""
        count = 0
        operation = f"CONSUMER.LIST.{names.stream}"
        async for consumer in self._pages(operation, "consumers", queue=names.queue):
            count += int(consumer["num_ack_pending"])
        return count

    async def _pages(
        self, operation: str, member: str, *, queue: str
    ) -> AsyncIterator[dict[str, Any]]:
        offset = 0
        while True:
            page = await self._api.call(operation, {"offset": offset}, queue=queue)
            found = page.get(member) or []
            for each in found:
                yield each
            offset += len(found)
            if not found or offset >= int(page.get("total") or 0):
                return


def _age_s(stream: Mapping[str, Any]) -> float | None:
    if not stream["state"]["messages"]:
        return None
    now_s, first_s = time_s(stream.get("ts")), time_s(stream["state"].get("first_ts"))
    return None if now_s is None or first_s is None else max(now_s - first_s, 0.0)
