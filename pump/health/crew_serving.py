"""Serving the health and the control of several processes while a block runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ..clock import Clock
from .crew import Crew
from .crew_control import CrewControl
from .crew_probes import CrewProbes
from .options import HealthOptions
from .serving import installed_version, listen


@asynccontextmanager
async def serving_crew(
    crew: Crew, options: HealthOptions | None, clock: Clock
) -> AsyncIterator[CrewProbes]:
    """Serve the health of several processes, and their control, until the block ends; gives what
    answers for all of them, and serves nothing without options.
    """
    version = await asyncio.to_thread(installed_version)
    probes = CrewProbes(crew, options, clock, version=version)
    async with AsyncExitStack() as stack:
        if options is not None:
            control = CrewControl(crew, probes)
            await listen(stack, options, clock, (probes.answer, control.answer))
        yield probes
