"""Scaling reaches blocking handlers too."""

from __future__ import annotations

import threading

from gateways.memory import MemoryGateway
from pump import App, Command, Subscription
from pump.stores.spill import MemorySpill


class Meet(Command):
    pass


async def test_when_scaled_up_then_as_many_blocking_handlers_run_at_once() -> None:
    """R53: each waits in its thread until all three are there."""
    app = App(MemoryGateway(), spill=MemorySpill())
    everyone = threading.Barrier(3)

    @app.handler
    def meet(request: Meet) -> None:
        everyone.wait(timeout=10)

    app.subscribe(Subscription(queue="meetings", request=Meet, concurrency=1))

    async with app, app.pumping() as dispatcher:
        dispatcher.scale("meetings", 3)
        await app.post_all([Meet(), Meet(), Meet()])
        await dispatcher.wait_until_empty()

    [performer] = dispatcher.performers
    assert (performer.stats.processed, performer.stats.retried) == (3, 0)
