"""How many functions of ours are called for a message: a count, so that no machine is too busy for
it, and a call more for every message does not get in unnoticed.
"""

from __future__ import annotations

import asyncio

from pump import App, Command, Subscription
from pump.stores.spill import MemorySpill

from .path import Tracer

FEW, MANY = 200, 1200
MAX_CALLS_PUMPED = 27
"""From the receive to the settlement of a message that is acked, on `memory://`."""
MAX_CALLS_POSTED = 10.5
"""Of a message that is one of many in a `post_all`."""


class Tick(Command):
    number: int


async def calls_for(count: int) -> tuple[int, int]:
    """The calls while so many messages are posted, and while they are pumped."""
    app = App("memory://", spill=MemorySpill())
    handled: list[int] = []
    is_done = asyncio.Event()

    async def handle(request: Tick) -> None:
        handled.append(request.number)
        if len(handled) == count:
            is_done.set()

    app.register(Tick, handle)
    app.subscribe(Subscription(queue="ticks", request=Tick))
    with Tracer() as tracer:
        async with app:
            tracer.is_on = True
            await app.post_all([Tick(number) for number in range(count)])
            posted = len(tracer.calls)
            async with app.pumping():
                await is_done.wait()
            tracer.is_on = False
    return posted, len(tracer.calls) - posted


async def test_when_a_message_is_posted_and_acked_then_no_more_is_called_than_needed() -> None:
    few_posted, few_pumped = await calls_for(FEW)
    many_posted, many_pumped = await calls_for(MANY)

    assert (many_posted - few_posted) / (MANY - FEW) <= MAX_CALLS_POSTED
    assert (many_pumped - few_pumped) / (MANY - FEW) <= MAX_CALLS_PUMPED
