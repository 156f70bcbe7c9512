"""A network before the naive gateway, in the hands of a test, and a gateway on its other side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import attrs

from pump.capabilities import Capabilities
from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.ports import AdminPort, ConsumerPort, ProducerPort, QueueStats
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .naive import NaiveGateway

T = TypeVar("T")


class NaiveNetwork:
    """Takes calls there and answers back; one that is severed meanwhile is never answered."""

    def __init__(self) -> None:
        self.is_shut = False
        self.severed_count = 0
        self.under_way: set[asyncio.Task[object]] = set()

    def sever(self) -> None:
        self.severed_count += 1
        for task in self.under_way:
            task.cancel()

    def shut(self) -> None:
        self.is_shut = True
        self.sever()

    def let_in(self) -> None:
        self.is_shut = False

    async def call(self, perform: Callable[[], Awaitable[T]]) -> T:
        """What it returns there. Raises `ConnectionFailed` when that is not to be known."""
        if self.is_shut:
            raise self.failure()
        task: asyncio.Task[T] = asyncio.ensure_future(self._there_and_back(perform))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        try:
            await asyncio.wait([task])
        finally:
            is_cut = task.cancelled()
            task.cancel()
        if is_cut:
            raise self.failure()
        return task.result()

    def failure(self) -> ConnectionFailed:
        return ConnectionFailed("the naive broker", "the connection was severed")

    async def _there_and_back(self, perform: Callable[[], Awaitable[T]]) -> T:
        await yield_to_loop()
        return await perform()


@attrs.define(eq=False)
class NaiveRemote:
    """The naive gateway from afar."""

    gateway: NaiveGateway
    network: NaiveNetwork

    @property
    def capabilities(self) -> Capabilities:
        return self.gateway.capabilities

    async def open(self) -> None:
        """Connects when it is called."""

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def consumer(self, subscription: Subscription) -> RemoteConsumer:
        return RemoteConsumer(self, self.gateway.consumer(subscription))

    def producer(self, queue: str) -> RemoteProducer:
        return RemoteProducer(self, self.gateway.producer(queue))

    def admin(self) -> RemoteAdmin:
        return RemoteAdmin(self, self.gateway.admin())

    async def receive(self, receive: Callable[[], Awaitable[T]]) -> T:
        return await self.network.call(receive)

    async def settle(self, perform: Callable[[], Awaitable[T]], held: Sequence[Delivery]) -> T:
        return await self.network.call(perform)

    async def ask(self, perform: Callable[[], Awaitable[T]]) -> T:
        return await self.network.call(perform)


@attrs.define(eq=False)
class RemoteConsumer:
    """Receives and settles from afar."""

    remote: NaiveRemote
    there: ConsumerPort

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self.remote.receive(
            lambda: self.there.receive(max_count=max_count, wait_s=wait_s)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        held = [each.delivery for each in settlements]
        return await self.remote.settle(lambda: self.there.settle(settlements), held)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return await self.remote.ask(lambda: self.there.extend(deliveries, lease_s=lease_s))

    async def aclose(self) -> None:
        """Nothing to let go of."""


@attrs.define(eq=False)
class RemoteProducer:
    """Sends from afar."""

    remote: NaiveRemote
    there: ProducerPort

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        return await self.remote.ask(lambda: self.there.send(messages, delay_s=delay_s))

    async def aclose(self) -> None:
        """Nothing to let go of."""


@attrs.define(eq=False)
class RemoteAdmin:
    """Looks after queues from afar."""

    remote: NaiveRemote
    there: AdminPort

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        await self.remote.ask(lambda: self.there.ensure(spec, make))

    async def queues(self) -> Sequence[QueueStats]:
        return await self.remote.ask(self.there.queues)

    async def stats(self, queue: str) -> QueueStats:
        return await self.remote.ask(lambda: self.there.stats(queue))

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await self.remote.ask(lambda: self.there.peek(queue, max_count=max_count))

    async def purge(self, queue: str) -> int:
        return await self.remote.ask(lambda: self.there.purge(queue))
