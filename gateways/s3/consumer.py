"""The consumer of one queue in objects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pump.message import Delivery
from pump.outcome import Refusal, Settlement

from .queues import Queues


class S3Consumer:
    """Receives from one queue; what one consumer of a gateway received, another may settle."""

    def __init__(self, queues: Queues, queue: str, lease: timedelta, *, receive_batch: int) -> None:
        self._queues = queues
        self._queue = queue
        self._lease_s = lease.total_seconds()
        self._batch = receive_batch

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        queue = await self._queues.of(self._queue)
        count = min(max_count, self._batch)
        return await queue.receive(max_count=count, wait_s=wait_s, lease_s=self._lease_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await (await self._queues.of(self._queue)).settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return await (await self._queues.of(self._queue)).extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        """Nothing to let go of: the queue is the gateway's."""
