"""Patience: protocols performed on a store, with a pause where it did not decide."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pump.clock import Clock

from ..store.driving import ObjectStore, Steps, drive
from ..store.objects import Busy, Reply, Request, Unknown

_T = TypeVar("_T")
_PAUSE_S = 0.1
_MAX_AT_ONCE = 64
"""How many requests of a queue are under way at once, claims and settlements together."""


class Driver:
    """Performs protocols, many at once but not too many."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._gate = asyncio.Semaphore(_MAX_AT_ONCE)

    async def run(self, steps: Steps[_T]) -> _T:
        """Perform a protocol to its end."""
        return await drive(steps, self)

    async def perform(self, request: Request) -> Reply:
        """One request; a protocol asks again by itself, so only the pause is added."""
        async with self._gate:
            reply = await self._store.perform(request)
        if isinstance(reply, Busy | Unknown):
            await self._clock.sleep(_PAUSE_S * (0.5 + self._clock.chance()))
        return reply
