"""Batch: deliveries that came together, run to one result each, or to the end of their time.

| a delivery is | when                                              | and then                     |
|---------------|---------------------------------------------------|------------------------------|
| waiting       | it was added                                      | starts as its lane allows    |
| running       | a worker has it                                   |                              |
| ended         | it was handled, put off or routed away            | reported                     |
| given back    | one before it in its group will come again, or    | reported as abandoned        |
|               | nothing is started any more                       |                              |
| lost          | the time was up while it ran                      | reported; handler is stopped |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ..clock import Clock
from ..message import Delivery
from ..outcome import ABANDON, Ack
from .lanes import Lanes
from .processing import DeliveryResult, Orders, ending_the_program
from .workers import PATIENCE_S, Workers

ProcessDelivery = Callable[[Delivery, Orders], Awaitable[DeliveryResult | None]]
"""As `DeliveryProcessor`: the result of a delivery, None when it was recalled meanwhile."""
OnResult = Callable[[Delivery, DeliveryResult | None], None]
"""Called with the result of each delivery; None for one that was lost."""


class Batch:
    """Runs a batch once, as many at once as it may, and each group in order."""

    def __init__(
        self,
        process: ProcessDelivery,
        on_result: OnResult,
        *,
        concurrency: int,
        single_lane: bool,
        clock: Clock,
    ) -> None:
        self._process = process
        self._on_result = on_result
        self._clock = clock
        self._lanes = Lanes(single_lane=single_lane)
        self._workers = Workers(self._lanes, self._work, concurrency=concurrency, clock=clock)
        self._open_count = 0
        self._all_ended = asyncio.Event()

    async def run(self, deliveries: Sequence[Delivery], *, limit_s: float | None) -> None:
        """Return when each was reported. After `limit_s` nothing starts, and what runs is lost."""
        if not deliveries:
            return
        self._open_count = len(deliveries)
        with ending_the_program():
            await self._run(deliveries, limit_s)

    async def _run(self, deliveries: Sequence[Delivery], limit_s: float | None) -> None:
        async with asyncio.TaskGroup() as group:
            for delivery in deliveries:
                self._lanes.add(delivery)
            if limit_s is not None and limit_s <= 0:
                self.give_back_unstarted()
                return
            self._workers.start(group)
            self._workers.wake()
            try:
                await self._wait_for_all(limit_s)
            finally:
                self._workers.stop()

    async def _wait_for_all(self, limit_s: float | None) -> None:
        try:
            async with self._clock.timeout(limit_s):
                await self._all_ended.wait()
        except TimeoutError:
            self.give_back_unstarted()
            self._workers.recall_all()
            await self._let_recalled_end()

    async def _let_recalled_end(self) -> None:
        try:
            async with self._clock.timeout(PATIENCE_S):
                await self._workers.wait_until_done()
        except TimeoutError:
            for delivery in self._workers.leave_behind():
                self._tell(delivery, None)

    def give_back_unstarted(self) -> None:
        """Start nothing any more; what runs goes on."""
        self._give_back(self._lanes.clear())

    async def _work(self, delivery: Delivery) -> None:
        try:
            result = await self._process(delivery, self._workers)
        except asyncio.CancelledError:
            if self._workers.is_dismissed and not self._workers.is_recalled(delivery):
                raise
            result = None
        if self._workers.is_left_behind(delivery):
            return
        is_gone = result is not None and isinstance(result.action, Ack)
        successors = self._lanes.finish(delivery, is_gone=is_gone)
        self._tell(delivery, result)
        self._give_back(successors)
        if self._lanes.ready:
            self._workers.wake()

    def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._tell(delivery, DeliveryResult(delivery, ABANDON, ABANDON))

    def _tell(self, delivery: Delivery, result: DeliveryResult | None) -> None:
        self._on_result(delivery, result)
        self._open_count -= 1
        if not self._open_count:
            self._all_ended.set()
