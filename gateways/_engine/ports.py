"""The ports over an engine, in this process or another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from pump.errors import InvalidReceipt, QueueNotFound
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from .broker import Broker
from .capabilities import ENGINE

_T = TypeVar("_T")


class EngineConsumer:
    """Receives from one queue of an engine."""

    def __init__(self, engine: Broker, queue: str, lease: timedelta) -> None:
        self._engine = engine
        self._queue = queue
        self._lease_s = lease.total_seconds()

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._engine.receive(
            self._queue,
            max_count=min(max_count, ENGINE.receive_batch),
            wait_s=wait_s,
            lease_s=self._lease_s,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        if len(settlements) > ENGINE.settle_batch:
            refused_of = [await self.settle(part) for part in _parts(settlements)]
            return [each for refusals in refused_of for each in refusals]
        receipts = [settlement.delivery.receipt for settlement in settlements]
        actions = [settlement.action for settlement in settlements]
        refused = await self._engine.settle(self._queue, receipts, actions)
        return [refusal(self._queue, settlements[position].delivery) for position in refused]

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        if len(deliveries) > ENGINE.settle_batch:
            refused_of = [await self.extend(part, lease_s=lease_s) for part in _parts(deliveries)]
            return [each for refusals in refused_of for each in refusals]
        receipts = [delivery.receipt for delivery in deliveries]
        refused = await self._engine.extend(self._queue, receipts, lease_s=lease_s)
        return [refusal(self._queue, deliveries[position]) for position in refused]

    async def aclose(self) -> None:
        """Nothing to let go of: the engine is the gateway's."""


class EngineProducer:
    """Sends to one queue of an engine."""

    def __init__(self, engine: Broker, queue: str) -> None:
        self._engine = engine
        self._queue = queue

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        return await self._engine.send(self._queue, messages, delay_s=delay_s)

    async def aclose(self) -> None:
        """Nothing to let go of: the engine is the gateway's."""


class EngineAdmin:
    """Looks after the queues of an engine."""

    def __init__(self, engine: Broker) -> None:
        self._engine = engine

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        await self._engine.ensure(spec, make)

    async def queues(self) -> Sequence[QueueStats]:
        return await self._engine.queues()

    async def stats(self, queue: str) -> QueueStats:
        for stats in await self._engine.queues():
            if stats.name == queue:
                return stats
        raise QueueNotFound(queue)

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await self._engine.peek(queue, max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await self._engine.purge(queue)


def refusal(queue: str, delivery: Delivery) -> Refusal:
    """Refuse a delivery whose receipt is not valid."""
    return Refusal(delivery, InvalidReceipt(queue, delivery.receipt))


def _parts(batch: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """A batch in pieces of which the engine applies each at once."""
    for start in range(0, len(batch), ENGINE.settle_batch):
        yield batch[start : start + ENGINE.settle_batch]
