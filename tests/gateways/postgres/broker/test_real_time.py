"""The server's real clock, which the contract suite replaces: nothing comes before its time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from pump.clock import SYSTEM_CLOCK
from pump.message import Delivery
from pump.testing.builders import a_message, defer

from .bench import PATIENCE_S, Bench, ids

pytestmark = [pytest.mark.broker, pytest.mark.asyncio]


async def test_when_time_passes_by_itself_then_what_is_due_comes_and_not_before(
    bench: Bench,
) -> None:
    async with bench.gateway(poll_s=PATIENCE_S) as gateway:
        subscription = await bench.make(gateway, lease=timedelta(seconds=1))
        consumer = gateway.consumer(subscription)
        began_s = SYSTEM_CLOCK.now_s()
        came_s: list[float] = []
        last: Sequence[Delivery] = ()

        await gateway.producer(bench.queue).send([a_message(id="a")], delay_s=0.5)
        for _ in range(3):
            [received] = last = await consumer.receive(max_count=1, wait_s=PATIENCE_S)
            came_s.append(SYSTEM_CLOCK.now_s() - began_s)
            assert ids([received]) == ["a"]
            if len(came_s) == 2:
                await consumer.settle([defer(received, seconds=0.5)])

        assert last[0].attempt == 3
        assert came_s[0] >= 0.5
        assert came_s[1] >= came_s[0] + 1
        assert came_s[2] >= came_s[1] + 0.5
