"""Harness: an app in memory, on virtual time, for testing one's handlers in four lines.

async with Harness(app) as harness:
    await harness.send(PlaceOrder(order_id="1"))
    await harness.run_until_idle()
    assert harness.statuses == ["processed"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from ..app import App
from ..dispatcher import Dispatcher
from ..events import Event, OutcomeEvent
from ..gateway_url import gateway_from_url
from ..message import Message
from ..ports import Gateway
from ..posting import PostOptions
from ..stores.spill import MemorySpill
from .virtual_clock import VirtualClock


class Harness:
    """Runs an app on a memory gateway: same handlers, middleware and subscriptions.

    Time stands still until `run_until_idle` or `advance`, so retries that would take minutes
    take none. Nothing touches the disk, and at its end the app is as it was.
    """

    def __init__(
        self, app: App, *, clock: VirtualClock | None = None, gateway: Gateway | None = None
    ) -> None:
        self.clock = clock or VirtualClock()
        self.events: list[Event] = []
        """Everything observers are told, in order."""
        self.spill = MemorySpill()
        self.app = app
        self._gateway = gateway or gateway_from_url("memory://", self.clock)
        self._stack = AsyncExitStack()
        self._dispatcher: Dispatcher | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def outcomes(self) -> list[OutcomeEvent]:
        """What became of each delivery, in the order it was settled."""
        return [event for event in self.events if isinstance(event, OutcomeEvent)]

    @property
    def statuses(self) -> list[str]:
        """The statuses of `outcomes`: "processed", "retrying" or "dead-lettered"."""
        return [outcome.status.value for outcome in self.outcomes]

    async def send(self, request: object, **options: Any) -> str:
        """Send a request, or a ready-made `Message`, to its queue; options as for `App.post`."""
        if isinstance(request, Message) and "queue" not in options:
            options["queue"] = self.app.subscriptions[0].queue
        return await self.app.processor.post(request, PostOptions(**options))

    async def run_until_idle(self, *, limit: timedelta = timedelta(days=7)) -> None:
        """Let time pass until every subscribed queue is empty and nothing is in flight.

        Raises TimeoutError when that has not come to pass after `limit` of virtual time, and
        whatever made a pump stop for good.
        """
        end_s = self.clock.now_s() + limit.total_seconds()
        while True:
            await self.clock.settle()
            self._raise_if_stopped()
            if await self._is_idle():
                return
            if self.clock.now_s() >= end_s or not await self.clock.advance_to_next():
                raise TimeoutError(
                    f"the queues are not empty after {limit}: {await self._depths()}"
                )

    async def advance(self, duration: timedelta) -> None:
        """Let a stretch of virtual time pass."""
        await self.clock.advance(duration.total_seconds())
        self._raise_if_stopped()

    async def messages(self, queue: str) -> Sequence[Message]:
        """What is in a queue now, a dead-letter queue for instance."""
        return await self._gateway.admin().peek(queue, max_count=1_000)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.enter_context(
                self.app.replacing(
                    gateway=self._gateway,
                    clock=self.clock,
                    spill=self.spill,
                    observers=[self.events.append],
                )
            )
            await stack.enter_async_context(self.app)
            self._dispatcher = self.app.dispatcher()
            self._running = asyncio.create_task(self._dispatcher.run(), name="harness")
            stack.push_async_callback(self._stop)
            await self.clock.settle()
            self._raise_if_stopped()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _stop(self) -> None:
        if self._running is not None and not self._running.done():
            assert self._dispatcher is not None
            self._dispatcher.stop_now()
            await self._running

    async def _is_idle(self) -> bool:
        assert self._dispatcher is not None
        return self._dispatcher.is_idle and not await self._depths()

    async def _depths(self) -> dict[str, int]:
        subscribed = {subscription.queue for subscription in self.app.subscriptions}
        return {
            stats.name: depth
            for stats in await self._gateway.admin().queues()
            if stats.name in subscribed
            and (depth := stats.visible + stats.in_flight + stats.delayed)
        }

    def _raise_if_stopped(self) -> None:
        if self._running is not None and self._running.done():
            self._running.result()
