"""A bucket in memory with logged queues, and gateways on it: one for each process of a test."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gateways._engine.ports import ENGINE
from gateways._engine.record import EngineSettings, is_bare
from gateways.s3.layout import (
    MAX_BODY_BYTES,
    Layout,
    QueueDescription,
    QueueKeys,
    S3QueueSettings,
    Surroundings,
)
from gateways.s3.log.queue import LoggedQueue
from gateways.s3.store.objects import ObjectStore, ServerTime
from pump.capabilities import Capabilities
from pump.clock import Clock
from pump.errors import QueueMismatch, QueueNotFound
from pump.message import Delivery, Message, new_id
from pump.outcome import Refusal, Settlement
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec, Subscription

from ..model_store import ModelS3, ModelStore

CAPABILITIES = attrs.evolve(
    ENGINE,
    gateway="s3",
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_body_bytes=MAX_BODY_BYTES,
)


class World:
    """One bucket, whose clock is the test's, and what its queues are like."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.s3 = ModelS3(clock.time_s)
        self.facts: dict[str, QueueDescription] = {}

    def store(self, time: ServerTime) -> ObjectStore:
        """The bucket as one process reaches it."""
        return ModelStore(self.s3, time, self.clock.now_s)


class LogGateway:
    """The gateway of one process."""

    def __init__(self, world: World, settings: S3QueueSettings | None = None) -> None:
        self.world = world
        self.settings = settings or S3QueueSettings()
        self.time = ServerTime(world.clock.now_s)
        self.store = world.store(self.time)
        self._queues: dict[str, LoggedQueue] = {}

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def open(self) -> None:
        """Nothing to do."""

    async def aclose(self) -> None:
        queues, self._queues = list(self._queues.values()), {}
        for queue in queues:
            await queue.aclose()

    def consumer(self, subscription: Subscription) -> LogConsumer:
        return LogConsumer(self, subscription.queue, subscription.lease.total_seconds())

    def producer(self, queue: str) -> LogProducer:
        return LogProducer(self, queue)

    def admin(self) -> LogAdmin:
        return LogAdmin(self)

    def queue(self, name: str) -> LoggedQueue:
        """The queue, or `QueueNotFound`."""
        if name not in self.world.facts:
            raise QueueNotFound(name)
        if name not in self._queues:
            surroundings = Surroundings(
                keys=QueueKeys("", name),
                store=self.store,
                time=self.time,
                clock=self.world.clock,
                send_to=self._send_to,
                new_id=new_id,
            )
            self._queues[name] = LoggedQueue(self.world.facts[name], surroundings, self.settings)
        return self._queues[name]

    async def _send_to(self, queue: str, message: Message) -> None:
        await self.queue(queue).send([message], delay_s=0.0)


@attrs.frozen
class LogConsumer:
    gateway: LogGateway
    name: str
    lease_s: float

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        queue = self.gateway.queue(self.name)
        return await queue.receive(max_count=max_count, wait_s=wait_s, lease_s=self.lease_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await self.gateway.queue(self.name).settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return await self.gateway.queue(self.name).extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        """Nothing to let go of."""


@attrs.frozen
class LogProducer:
    gateway: LogGateway
    name: str

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        return await self.gateway.queue(self.name).send(messages, delay_s=delay_s)

    async def aclose(self) -> None:
        """Nothing to let go of."""


@attrs.frozen
class LogAdmin:
    gateway: LogGateway

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        if make is MakeChannels.ASSUME:
            return
        wanted, known = facts_of(spec), self.gateway.world.facts
        there = known.get(spec.name)
        if make is MakeChannels.VALIDATE:
            if there is None:
                raise QueueNotFound(spec.name)
            if there != wanted and not is_bare(spec):
                raise QueueMismatch(spec.name, f"{there} is not {wanted}")
            return
        if wanted.dead_letter_queue is not None and wanted.dead_letter_queue not in known:
            known[wanted.dead_letter_queue] = QueueDescription(name=wanted.dead_letter_queue)
        if there is None or not is_bare(spec):
            known[spec.name] = wanted
            await self.gateway.queue(spec.name).adopt(wanted)

    async def queues(self) -> Sequence[QueueStats]:
        return [await self.stats(name) for name in sorted(self.gateway.world.facts)]

    async def stats(self, queue: str) -> QueueStats:
        return await self.gateway.queue(queue).stats()

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await self.gateway.queue(queue).peek(max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await self.gateway.queue(queue).purge()


def facts_of(spec: QueueSpec) -> QueueDescription:
    """What a spec asks for."""
    wanted = EngineSettings.from_spec(spec)
    return QueueDescription(
        name=wanted.name,
        layout=Layout.LOG,
        is_lifo=wanted.is_lifo,
        is_strict=wanted.is_strict,
        max_receive_count=wanted.max_receive_count,
        dead_letter_queue=wanted.dead_letter_queue,
        deduplication_window_s=wanted.deduplication_window_s,
    )
