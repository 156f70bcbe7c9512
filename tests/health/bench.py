"""A rig whose health and control are served over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pump.dispatcher import Dispatcher
from pump.health import HealthOptions
from pump.health.control import Served

from ..core.rig import Rig
from .caller import Reply, call


class HealthBench:
    """A rig, and callers of its endpoints; the rig's clock is the test's."""

    def __init__(self, rig: Rig, served: Served) -> None:
        self.rig = rig
        assert served.health is not None
        assert served.control is not None
        self.health_url, self.control_url = served.health, served.control

    @property
    def dispatcher(self) -> Dispatcher:
        return self.rig.dispatcher

    async def get(self, path: str) -> Reply:
        """Ask the health endpoint."""
        return await call(self.health_url, "GET", path)

    async def post(self, path: str, body: object = None, **headers: str | None) -> Reply:
        """Ask the control endpoint to do something."""
        return await call(self.control_url, "POST", path, body, **headers)

    async def status_of(self, *paths: str) -> list[int]:
        """The statuses of probes."""
        return [(await self.get(path)).status for path in paths]


@asynccontextmanager
async def serving(rig: Rig, *, starts: bool = True) -> AsyncIterator[HealthBench]:
    """Serve the rig's health from before it starts until after it has ended."""
    async with rig:
        rig._dispatcher = rig.app.dispatcher()
        options = HealthOptions(port=0, control_port=0)
        async with rig.app.serving_health(rig.dispatcher, options) as served:
            bench = HealthBench(rig, served)
            if starts:
                await start(rig)
            yield bench
            if rig.running is not None and not rig.running.done():
                rig.dispatcher.stop_now()
                await rig.clock.advance(10)


async def start(rig: Rig) -> None:
    """Run the dispatcher whose health is served."""
    import asyncio

    rig.running = asyncio.create_task(rig.dispatcher.run(), name="rig")
    await rig.clock.settle()
