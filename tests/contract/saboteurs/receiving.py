"""Saboteurs of receiving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from msgspec.structs import replace

from pump.clock import yield_to_loop
from pump.message import Delivery
from pump.subscription import QueueSpec, Subscription

from ..naive import Entry, NaiveGateway, Queue
from ..naive_ports import NaiveConsumer
from .base import Saboteur


class SaysLeasesEndNow(Saboteur):
    def lease(self, queue: Queue, entry: Entry, lease_s: float) -> Delivery:
        delivery = super().lease(queue, entry, lease_s)
        return replace(delivery, lease_expires_at_s=self.clock.now_s())


class NamesEachDeliveryAnew(Saboteur):
    def lease(self, queue: Queue, entry: Entry, lease_s: float) -> Delivery:
        delivery = super().lease(queue, entry, lease_s)
        return replace(delivery, broker_id=delivery.receipt)


class NamesCopiesAlike(Saboteur):
    def lease(self, queue: Queue, entry: Entry, lease_s: float) -> Delivery:
        delivery = super().lease(queue, entry, lease_s)
        return replace(delivery, broker_id=delivery.message.id)


class RaisesOnAnEmptyReceive(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            received = await super().receive(max_count=max_count, wait_s=wait_s)
            if not received:
                raise TimeoutError("nothing there")
            return received


class ReturnsAnEmptyTuple(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            return await super().receive(max_count=max_count, wait_s=wait_s) or ()


class GivesUpWaitingEarly(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            return await super().receive(max_count=max_count, wait_s=wait_s * 0.98)


class WaitsTooLong(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            return await super().receive(max_count=max_count, wait_s=wait_s * 1.02)


class NeverWaits(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            return await super().receive(max_count=max_count, wait_s=0.0)


class WakesNobody(Saboteur):
    def wake(self) -> None:
        pass


class SleepsThroughDelaysAndLeases(Saboteur):
    async def wait(self, until_s: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        with contextlib.suppress(TimeoutError):
            async with self.clock.timeout(until_s - self.clock.now_s()):
                await waiter


class ReturnsOneMoreThanAsked(Saboteur):
    def take(self, queue: Queue, max_count: int, lease_s: float) -> list[Delivery]:
        return super().take(queue, max_count + 1, lease_s)


class FailsAboveItsBatchSize(Saboteur):
    def take(self, queue: Queue, max_count: int, lease_s: float) -> list[Delivery]:
        if max_count > self.capabilities.receive_batch:
            raise ValueError("too many")
        return super().take(queue, max_count, lease_s)


class MakesTheQueueItReceivesFrom(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            self.gateway.create(QueueSpec(name=self.subscription.queue))
            return await super().receive(max_count=max_count, wait_s=wait_s)


class HidesWhatACancelledReceiveTook(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            received = await super().receive(max_count=max_count, wait_s=wait_s)
            await yield_to_loop()
            return received


class SwallowsCancellation(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            try:
                return await super().receive(max_count=max_count, wait_s=wait_s)
            except asyncio.CancelledError:
                return []


class ReceivesOnAfterCancellation(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            work = super().receive(max_count=max_count, wait_s=wait_s)
            return await asyncio.shield(asyncio.ensure_future(work))


class DeliversToTwo(Saboteur):
    """Looks, lets others look, and only then takes."""

    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            queue = self.gateway.find(self.subscription.queue)
            seen = list(self.gateway.ready(queue))[:max_count]
            await yield_to_loop()
            if not seen:
                return await super().receive(max_count=max_count, wait_s=wait_s)
            lease_s = self.subscription.lease.total_seconds()
            return [self.gateway.lease(queue, entry, lease_s) for entry in seen]


class DeliversToAllWhoWait(Saboteur):
    """Hands what was sent to every receive that waits for it."""

    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            queue = self.gateway.find(self.subscription.queue)
            received = await super().receive(max_count=max_count, wait_s=0.0)
            if received or wait_s == 0:
                return received
            await self.gateway.wait(self.gateway.clock.now_s() + wait_s)
            lease_s = self.subscription.lease.total_seconds()
            return [self.gateway.lease(queue, e, lease_s) for e in queue.entries[:max_count]]


class MakesTheQueueWhenAskedForAPort(Saboteur):
    class Consumer(NaiveConsumer):
        def __init__(self, gateway: NaiveGateway, subscription: Subscription) -> None:
            super().__init__(gateway, subscription)
            gateway.create(QueueSpec(name=subscription.queue))
