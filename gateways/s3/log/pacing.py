"""Pacing: the pauses that steps cannot make."""

from __future__ import annotations

from pump.clock import Clock

from ..store.driving import ObjectStore
from ..store.objects import Busy, Reply, Request, Unknown

_FIRST_S = 0.05
_MAX_S = 2.0


class PacedStore:
    """A store for one protocol: pauses, longer each time, before it tells of a request that was
    not answered or not decided, so that the next one is not made at once.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pause_s = _FIRST_S

    async def perform(self, request: Request) -> Reply:
        reply = await self._store.perform(request)
        if isinstance(reply, Busy):
            await self._clock.sleep(2 * _FIRST_S * self._clock.chance())
        elif isinstance(reply, Unknown):
            await self._clock.sleep(self._pause_s * (0.5 + self._clock.chance()))
            self._pause_s = min(2 * self._pause_s, _MAX_S)
        return reply
