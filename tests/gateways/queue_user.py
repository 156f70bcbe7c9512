"""A user of one queue, so that a test reads as what it does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pump.message import Delivery, Message
from pump.outcome import ABANDON, ACK, Action, Defer, Refusal, Settlement
from pump.ports import Gateway, QueueStats
from pump.subscription import MakeChannels, Subscription

LEASE_S = 30.0


class QueueUser:
    def __init__(self, gateway: Gateway, queue: str = "orders", **fields: Any) -> None:
        self.gateway = gateway
        fields = {"request": dict, "lease": timedelta(seconds=LEASE_S), **fields}
        self.subscription = Subscription(queue=queue, **fields)
        self.consumer = gateway.consumer(self.subscription)
        self.producer = gateway.producer(queue)
        self.admin = gateway.admin()

    async def create(self) -> QueueUser:
        for spec in self.subscription.queue_specs():
            await self.admin.ensure(spec, MakeChannels.CREATE)
        return self

    async def send(self, *bodies: str, delay_s: float = 0.0, **fields: Any) -> list[str]:
        messages = [Message(body=body.encode(), **fields) for body in bodies]
        return list(await self.producer.send(messages, delay_s=delay_s))

    async def receive(self, max_count: int = 10, wait_s: float = 0.0) -> list[Delivery]:
        received = list(await self.consumer.receive(max_count=max_count, wait_s=wait_s))
        limit = self.gateway.capabilities.receive_batch
        is_whole = len(received) < limit
        while len(received) < max_count and not is_whole:
            more = await self.consumer.receive(max_count=max_count - len(received), wait_s=0.0)
            received += more
            is_whole = len(more) < limit
        return received

    async def bodies(self, max_count: int = 10, wait_s: float = 0.0) -> list[str]:
        return [d.message.body.decode() for d in await self.receive(max_count, wait_s)]

    async def ack(self, *deliveries: Delivery) -> Sequence[Refusal]:
        return await self._settle(deliveries, ACK)

    async def abandon(self, *deliveries: Delivery) -> Sequence[Refusal]:
        return await self._settle(deliveries, ABANDON)

    async def defer(self, *deliveries: Delivery, delay_s: float = 0.0) -> Sequence[Refusal]:
        return await self._settle(deliveries, Defer(delay_s))

    async def stats(self, queue: str | None = None) -> QueueStats:
        wanted = queue or self.subscription.queue
        return next(each for each in await self.admin.queues() if each.name == wanted)

    async def _settle(self, deliveries: Sequence[Delivery], action: Action) -> Sequence[Refusal]:
        return await self.consumer.settle([Settlement(d, action) for d in deliveries])
