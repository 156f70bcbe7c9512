"""Performer: one subscription, what was asked of it, and the pump that serves it.

| state    | means                                                   | and then                    |
|----------|---------------------------------------------------------|-----------------------------|
| starting | its queues are not made yet, or no pump is              | running, paused, drained    |
| running  | receives and handles                                    | paused, draining, failed    |
| paused   | receives nothing; what was in hand runs to its end      | running, draining, failed   |
| draining | finishes what it started, has handed back the rest      | drained, or stopped         |
| drained  | has nothing in hand and no pump; asked for by its name  | running, paused             |
| failed   | broke by a defect; handed back, and will be restarted   | running, paused, drained    |
| stopped  | ended for good: with the app, or by its own decision    |                             |

From every state to `stopped` when the app ends. What is asked outlasts the pump: a paused
subscription whose pump breaks has its next pump paused too.

| asked to | running, failed, starting | paused   | draining           | drained  | stopped |
|----------|---------------------------|----------|--------------------|----------|---------|
| pause    | paused                    |          |                    |          | refused |
| resume   |                           | running  | anew, once drained | anew     | refused |
| drain    | draining, then drained    | the same |                    |          | refused |
| scale    | at once, and every later pump                                 |         | refused |

An empty cell changes nothing and is no error, so that whoever asks may ask again. What has no
pump (starting, failed) does as it was asked when it would have one; a failed one is drained at
once. While the whole app drains, all but scaling is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

import attrs

from .errors import PumpError
from .loop import Pump, PumpStats
from .subscription import Subscription

STEADY_S = 60.0
"""A pump that has run this long is not failing any more: the next backoff starts anew."""


class PumpState(StrEnum):
    """What a subscription's pump does; the table above."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"
    STOPPED = "stopped"


class Asked(StrEnum):
    """What whoever controls a subscription wants of it."""

    RUN = "run"
    PAUSE = "pause"
    DRAIN = "drain"


@attrs.frozen
class ControlRefused(PumpError):
    """A subscription cannot do as it was told in the state it is in."""

    subscription: str
    state: str
    remedy: str

    def __str__(self) -> str:
        return f"subscription {self.subscription!r} is {self.state}: {self.remedy}"


@attrs.define(eq=False)
class Performer:
    """One subscription and the pump that currently serves it."""

    subscription: Subscription
    stats: PumpStats = attrs.field(factory=PumpStats)
    pump: Pump | None = None
    concurrency: int = 0
    state: str = PumpState.STARTING
    asked: Asked = Asked.RUN
    failure: Exception | None = None
    """Why it stopped for good."""
    last_error: Exception | None = None
    """What its pump last broke by, or what kept its queues from being made."""
    has_channels: bool = False
    reached_at_s: float | None = None
    """When the broker made its queues, or said that they are there."""
    started_at_s: float | None = None
    """When its present pump started."""
    failing_since_s: float | None = None
    """When the first pump broke of those that broke without one between that ran for a while."""
    _told: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    def ask(self, asked: Asked) -> None:
        """Have the pump do this, and every later one."""
        if asked is Asked.PAUSE and self.asked is Asked.DRAIN:
            return  # It receives nothing already, and is to hand back more than a pause would.
        self.asked = asked
        self.wake()
        if self.pump is None:
            return
        match asked:
            case Asked.PAUSE:
                self.pump.pause()
            case Asked.RUN:
                self.pump.resume()
            case Asked.DRAIN:
                self.pump.drain()

    def wake(self) -> None:
        """Have whoever waits for a word look again."""
        self._told.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once a word was said after which the condition holds."""
        while not condition():
            self._told.clear()
            await self._told.wait()
