"""Performer: one subscription, what was asked of it, and the pump that serves it.

| state    | means                                                   | and then                    |
|----------|---------------------------------------------------------|-----------------------------|
| starting | its queues are not made yet, or no pump is              | running, paused, drained    |
| running  | receives and handles                                    | paused, draining, failed    |
| paused   | receives nothing; what is in flight runs to its end     | running, draining, failed   |
| draining | finishes what it started, has handed back the rest      | drained, or stopped         |
| drained  | has nothing in flight, no pump; asked for by its name   | running, paused             |
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

An empty cell changes nothing and is no error, so that asking again is safe. What has no
pump (starting, failed) does as it was asked when it would have one; a failed one is drained at
once. While the whole app drains, all but scaling is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from .backoff import Backoff
from .clock import Clock
from .errors import AccessDenied, GatewayError, PumpError, QueueNotFound
from .loop import Pump, PumpStats
from .observability import vocabulary
from .observability.log import get_logger
from .ports import Gateway
from .subscription import Subscription

if TYPE_CHECKING:
    from .outbox.store import RelaySource

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


class DesiredState(StrEnum):
    """What the control of a subscription wants of it."""

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
    asked: DesiredState = DesiredState.RUN
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

    def ask(self, asked: DesiredState) -> None:
        """Have the pump do this, and every later one."""
        if asked is DesiredState.PAUSE and self.asked is DesiredState.DRAIN:
            return  # It receives nothing already, and is to hand back more than a pause would.
        self.asked = asked
        self.wake()
        if self.pump is None:
            return
        match asked:
            case DesiredState.PAUSE:
                self.pump.pause()
            case DesiredState.RUN:
                self.pump.resume()
            case DesiredState.DRAIN:
                self.pump.drain()

    def wake(self) -> None:
        """Have the task that waits for a change look again."""
        self._told.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once a word was said after which the condition holds."""
        while not condition():
            self._told.clear()
            await self._told.wait()


# Idle detector: knows when every queue that is worked on is empty.
#
# | the subscription    | its queue                                                             |
# |---------------------|-----------------------------------------------------------------------|
# | is drained, stopped | is not waited for: nothing here will empty it                         |
# | is paused           | is waited for, and a warning says so once nothing else is             |
# | otherwise           | is waited for                                                         |

_log = get_logger("pump.dispatcher")
_LOOK = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(seconds=1))
LOOKS_AT_ESTIMATES = 3
"""A broker that only estimates may miss a message that is just on its way from hand to hand, or
that has only just been sent: it is believed when it says the same so often in a row."""
LOOK_AGAIN_S = 0.5
_GONE = (PumpState.DRAINED, PumpState.STOPPED)


class IdleDetector:
    """Watches the queues of some performers."""

    def __init__(
        self,
        performers: Sequence[Performer],
        gateway: Gateway,
        clock: Clock,
        outbox: RelaySource | None = None,
    ) -> None:
        """What waits in the `outbox` for one of the queues is as good as in it."""
        self._performers = performers
        self._outbox = outbox
        self._admin = gateway.admin()
        self._looks = looks_needed(gateway)
        self._clock = clock
        self._warned_of: str | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no pump has anything in flight."""
        return all(each.pump is None or each.pump.is_idle for each in self._performers)

    async def wait(self) -> None:
        """Return once every queue that is waited for is empty and nothing is in flight.

        A broker that is away is waited for; `AccessDenied` is raised.
        """
        attempt = empty_looks = 0
        while True:
            if self.is_idle and await self._are_empty():
                attempt, empty_looks = 0, empty_looks + 1
                if empty_looks == self._looks:
                    return
                await self._clock.sleep(LOOK_AGAIN_S)
            else:
                attempt, empty_looks = attempt + 1, 0
                await self._clock.sleep(_LOOK.delay_s(attempt, self._clock.chance()))

    async def _are_empty(self) -> bool:
        awaited = [each for each in self._performers if each.state not in _GONE]
        worked_on = {each.subscription.queue for each in awaited if not _is_paused(each)}
        # Before the queues: what was relayed meanwhile is found there.
        if await self._wait_in_outbox(worked_on):
            return False
        for queue in worked_on:
            if await self._may_have_messages(queue):
                return False
        for each in awaited:
            queue = each.subscription.queue
            if queue not in worked_on and await self._may_have_messages(queue):
                self._warn(each)
                return False
        return True

    async def _wait_in_outbox(self, queues: Collection[str]) -> bool:
        if self._outbox is None:
            return False
        try:
            return not set(queues).isdisjoint(await self._outbox.destinations())
        except GatewayError:
            return True

    async def _may_have_messages(self, queue: str) -> bool:
        try:
            stats = await self._admin.stats(queue)
        except QueueNotFound:
            return False
        except AccessDenied:
            raise
        except GatewayError:
            return True  # A gateway that cannot be asked may have messages.
        return bool(stats.visible + stats.in_flight + stats.delayed)

    def _warn(self, performer: Performer) -> None:
        name = performer.subscription.name
        if name != self._warned_of:
            self._warned_of = name
            _log.warning(
                vocabulary.DRAIN_DELAYED,
                subscription=name,
                queue=performer.subscription.queue,
                remedy="it is paused and its queue is not empty: resume it, or drain it",
            )


def looks_needed(gateway: Gateway) -> int:
    """How often in a row a queue has to be said to be empty, to be."""
    return 1 if gateway.capabilities.has_exact_stats else LOOKS_AT_ESTIMATES


def _is_paused(performer: Performer) -> bool:
    return performer.state == PumpState.PAUSED
