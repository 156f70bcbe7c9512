"""A function on a rig: an app whose work comes in events, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pump.aws_lambda import LambdaOptions
from pump.aws_lambda.handler import BatchAnswer, EventConsumer
from pump.testing.virtual_clock import VirtualClock

from .pushing_gateway import PushingGateway
from .rig import Behaviour, Rig, Work, succeed


class Function:
    """A rig whose work comes in events."""

    def __init__(
        self,
        behaviour: Behaviour = succeed,
        *,
        options: LambdaOptions | None = None,
        **fields: Any,
    ) -> None:
        clock = VirtualClock(chance=0.0)
        self.gateway = PushingGateway(clock)
        self.rig = Rig(behaviour, gateway=self.gateway, clock=clock, **fields)
        self.clock = clock
        self._options = options or LambdaOptions()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[EventConsumer]:
        async with self.rig:
            self.consumer = self.rig.app.event_consumer(self._options)
            yield self.consumer
            await self.consumer.aclose()

    async def invoke(self, *records: dict[str, Any], ends_in_s: float | None = None) -> list[str]:
        """The ids that failed; virtual time passes until the event is handled."""
        answer, running = self.start(*records, ends_in_s=ends_in_s)
        await self.clock.settle()
        while not running.done():
            assert await self.clock.advance_to_next(), "it waits for ever"
        await running
        return answer.failed_ids

    def start(
        self, *records: dict[str, Any], ends_in_s: float | None = None
    ) -> tuple[BatchAnswer, asyncio.Task[None]]:
        answer = self.consumer.read({"Records": list(records)})
        ends_at_s = None if ends_in_s is None else self.clock.now_s() + ends_in_s
        handling = self.consumer.handle(answer, ends_at_s=ends_at_s)
        return answer, asyncio.create_task(handling, name="event")


def failing(*numbers: int, error: Exception | None = None) -> Behaviour:
    async def behave(work: Work) -> None:
        if work.n in numbers:
            raise error or RuntimeError("no")

    return behave
