"""The bench: any number of clients of one server, and queues of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import attrs

from gateways.nats import NatsGateway, NatsSettings
from pump import App, Subscription
from pump.clock import SYSTEM_CLOCK
from pump.consumer import Consumer
from pump.errors import ConnectionFailed, SendFailed
from pump.message import Delivery, new_id
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message, ack

T = TypeVar("T")

LEASE = timedelta(seconds=20)
PATIENTLY = timedelta(seconds=30)


def gateway_at(url: str, **fields: Any) -> NatsGateway:
    """A gateway that is not open yet."""
    return NatsGateway(attrs.evolve(NatsSettings.from_url(url), **fields), SYSTEM_CLOCK)


class Bench:
    """Clients of one queue that nobody else uses."""

    def __init__(self, url: str, queue: str | None = None) -> None:
        self.url = url
        self.queue = queue or f"orders-{new_id()}"

    def at(self, port: int) -> Bench:
        """The same queue, by another way."""
        return Bench(f"nats://127.0.0.1:{port}", self.queue)

    def subscription(self, **fields: Any) -> Subscription:
        defaults: dict[str, Any] = {
            "queue": self.queue,
            "request": dict,
            "lease": LEASE,
            "wait": PATIENTLY,
        }
        return Subscription(**{**defaults, **fields})

    @asynccontextmanager
    async def gateway(self, **fields: Any) -> AsyncIterator[NatsGateway]:
        """An open gateway with a connection of its own."""
        gateway = gateway_at(self.url, **fields)
        try:
            await gateway.open()
            yield gateway
        finally:
            await gateway.aclose()

    @asynccontextmanager
    async def client(self, **fields: Any) -> AsyncIterator[Consumer]:
        """A consumer with a connection of its own; the queue is made if it is missing."""
        app = App(gateway_at(self.url), clock=SYSTEM_CLOCK, spill=MemorySpill())
        async with app, app.consumer(self.subscription(**fields)) as consumer:
            yield consumer

    async def make(self, gateway: NatsGateway, **fields: Any) -> None:
        subscription = self.subscription(**fields)
        for spec in subscription.queue_specs():
            await gateway.admin().ensure(spec, subscription.make_channels)

    async def send(self, group: str | None, *ids: str) -> None:
        async with self.gateway() as gateway:
            await gateway.producer(self.queue).send([a_message(id=i, group=group) for i in ids])

    async def take_all(self) -> list[Delivery]:
        """Everything that can be received, acked."""
        taken: list[Delivery] = []
        async with self.gateway() as gateway:
            consumer = gateway.consumer(self.subscription())
            while received := await consumer.receive(max_count=256, wait_s=0.5):
                assert not await consumer.settle([ack(each) for each in received])
                taken.extend(received)
        return taken


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    """Which messages they are."""
    return [delivery.message.id for delivery in deliveries]


async def surely(attempt: Callable[[], Awaitable[T]]) -> T:
    """As a careful caller does it: again, while the server is away. The gateway itself waits
    between its attempts to connect.
    """
    for _ in range(100):
        try:
            return await attempt()
        except (ConnectionFailed, SendFailed):
            continue
    return await attempt()
