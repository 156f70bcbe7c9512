"""Heartbeat: keeps a claim alive while its handler runs."""

from __future__ import annotations

import asyncio
from typing import Self

import attrs

from pump.clock import Timer
from pump.context import Context
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.stores.inbox import Held

_log = get_logger("pump.handlers")
_BEATS_PER_LEASE = 3


@attrs.define(eq=False)
class Heartbeat:
    """`async with Heartbeat(…):` extends the claim three times a lease until the block ends.

    A handler that is done before the first beat pays for one timer. A beat that fails is
    followed by the next; a claim that somebody else has taken is let go, with a warning.
    """

    held: Held
    context: Context
    lease_s: float
    _timer: Timer | None = attrs.field(default=None, init=False)
    _task: asyncio.Task[None] | None = attrs.field(default=None, init=False)

    async def __aenter__(self) -> Self:
        self._timer = self.context.clock.call_later(self.lease_s / _BEATS_PER_LEASE, self._start)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._beat(), name=f"heartbeat of {self.context.handler}"
        )

    async def _beat(self) -> None:
        while await self._extend():
            await self.context.clock.sleep(self.lease_s / _BEATS_PER_LEASE)
        _log.warning(vocabulary.CLAIM_LOST, handler=self.context.handler)

    async def _extend(self) -> bool:
        try:
            return await self.held.inbox.extend(
                self.held.key,
                owner=self.held.owner,
                now_s=self.context.clock.time_s(),
                lease_s=self.lease_s,
            )
        except Exception as error:  # broad: the store is the application's; the next beat may do
            _log.warning(
                vocabulary.CLAIM_EXTENSION_FAILED,
                handler=self.context.handler,
                error=type(error).__name__,
            )
            return True
