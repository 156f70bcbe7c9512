"""Pace: so many messages a second and no more."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..clock import Clock

_BURST_S = 1.0
"""What was not used is saved up for so long."""


class Pace:
    """A token bucket. None for the rate means no limit. For one task."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        # Begins empty: the first second has no burst on top of its share.
        self._tokens = 0.0
        self._at_s = clock.now_s()

    def most_at_once(self, batch: int) -> int:
        """How large a batch may be, such that it waits for about a second at most."""
        if self._rate is None:
            return batch
        return max(1, min(batch, int(self._rate * _BURST_S)))

    async def wait_for(self, count: int, stopping: asyncio.Event) -> bool:
        """Return when `count` may be sent; False when `stopping` came first."""
        if self._rate is None:
            return not stopping.is_set()
        while not stopping.is_set():
            self._refill(count)
            if self._tokens >= count - 1e-9:
                self._tokens -= count
                return True
            with suppress(TimeoutError):
                async with self._clock.timeout((count - self._tokens) / self._rate):
                    await stopping.wait()
        return False

    def _refill(self, count: int) -> None:
        assert self._rate is not None
        now_s = self._clock.now_s()
        most = max(float(count), self._rate * _BURST_S)
        self._tokens = min(most, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
