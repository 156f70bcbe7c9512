"""The NATS gateway: JetStream streams as queues, through nats-py; and their administration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import QueueMismatch
from pump.message import Message
from pump.observability.log import get_logger
from pump.observability.vocabulary import QUEUE_DIFFERS
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats, SessionPort
from pump.subscription import MakeChannels, QueueSpec, Subscription
from pump.tasks import BackgroundTasks

from .._kit.queues import stats_of_all
from .connection import ApiError, JetStream, NatsConnection, fault_of
from .consumer import NatsConsumer
from .errors import CONSUMER_NOT_FOUND, STREAM_EXISTS
from .link import Link, ServerRequest
from .names import FORGETFUL_S, NATS, SCHEDULING_SERVER, QueueNames
from .producer import NatsProducer
from .pulls import message_in, next_stored
from .queue_settings import (
    QUEUE,
    KnownQueues,
    NatsQueueSettings,
    consumer_info,
    make_consumer,
    time_s,
)
from .receipts import Receipts, subject_of
from .session import NatsSession, NatsSessions, let_go
from .settings import NatsSettings
from .settling import nak

_RELEASE_S = 2.0
"""How long closing waits for the locks of sessions to be released."""


class NatsGateway:
    """One account's queues on a server or cluster, over one connection."""

    def __init__(self, settings: NatsSettings | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings or NatsSettings()
        self._clock = clock
        self._connection = NatsConnection(self._settings, clock)
        self._connection.on_other_server = self._doubt
        self._api = JetStream(self._connection)
        self._known = KnownQueues(self._api, clock)
        self._receipts: dict[str, Receipts] = {}
        self._chores = BackgroundTasks("nats")
        self._sessions: set[NatsSession] = set()

    def __repr__(self) -> str:
        return f"NatsGateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        """The largest body is the server's to say, once it is connected to."""
        if self._connection.max_payload == NATS.max_body_bytes:
            return NATS
        return attrs.evolve(NATS, max_body_bytes=self._connection.max_payload)

    async def open(self) -> None:
        """Checks the SDK and the server's version."""
        await self._connection.open()

    async def aclose(self) -> None:
        """Releases the sessions that are still open; what cannot be, runs out by itself."""
        try:
            async with self._clock.timeout(_RELEASE_S):
                await asyncio.gather(*(let_go(each) for each in self._sessions))
                # Locks acquired for callers that were cancelled are being released.
                await self._chores.finish()
        except TimeoutError:
            pass
        finally:
            await self._connection.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """`ConfigurationError` or `UnsupportedOperation` for queues that NATS cannot offer."""
        for spec in subscription.queue_specs():
            NatsQueueSettings.from_spec(spec)
        # What one consumer of a queue received, another one may settle.
        receipts = self._receipts.setdefault(subscription.queue, Receipts())
        return NatsConsumer(self._api, self._known, subscription, receipts, clock=self._clock)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Of queues made with `options={"sessions": True}`, whose groups are received so only."""
        sessions = NatsSessions(
            self._api, self._known, subscription, clock=self._clock, chores=self._chores
        )
        accepted = await sessions.accept(session, wait_s=wait_s)
        self._sessions = {each for each in self._sessions if not each.is_over}
        if accepted is not None:
            self._sessions.add(accepted)
        return accepted

    def producer(self, queue: str) -> ProducerPort:
        return NatsProducer(self._api, queue, clock=self._clock)

    def admin(self) -> AdminPort:
        return NatsAdmin(self._api, self._known, clock=self._clock)

    def _doubt(self, alive_until_s: float) -> None:
        since_s, now_s = alive_until_s - FORGETFUL_S, self._clock.now_s()
        again: list[ServerRequest] = []
        for receipts in self._receipts.values():
            receipts.doubt(since_s)
            again += [
                ServerRequest(subject=subject_of(receipt), payload=nak(delay_s))
                for receipt, delay_s in receipts.to_tell_again(since_s, now_s=now_s)
            ]
        if again:
            self._connection.later(lambda link: self._tell_again(link, again))

    async def _tell_again(self, link: Link, deferrals: list[ServerRequest]) -> None:
        """What was deferred; one that is not answered comes when the server has it come."""
        await link.request_all(deferrals, timeout_s=self._settings.request_timeout_s)


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`nats://user:password@host:4222`; see `NatsSettings.from_url`."""
    return NatsGateway(NatsSettings.from_url(url), SYSTEM_CLOCK if clock is None else clock)


# The caretaker of NATS queues: makes, checks, lists, looks into and empties them.


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
        return await stats_of_all(
            self._names(), lambda names: self.stats(names.queue), gateway="nats"
        )

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
