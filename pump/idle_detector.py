"""Emptying: knowing when every queue that is worked on is empty.

| the subscription    | its queue                                                             |
|---------------------|-----------------------------------------------------------------------|
| is drained, stopped | is not waited for: nobody here will empty it                          |
| is paused           | is waited for, and a warning says so once nothing else is             |
| otherwise           | is waited for                                                         |
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from .backoff import Backoff
from .clock import Clock
from .errors import AccessDenied, GatewayError, QueueNotFound
from .observability import vocabulary
from .observability.log import get_logger
from .performer import Performer, PumpState
from .ports import Gateway

_log = get_logger("pump.dispatcher")
_LOOK = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(seconds=1))
LOOKS_AT_ESTIMATES = 3
"""A broker that only estimates may miss a message that is just on its way from hand to hand, or
that has only just been sent: it is believed when it says the same so often in a row."""
LOOK_AGAIN_S = 0.5
_GONE = (PumpState.DRAINED, PumpState.STOPPED)


class Emptying:
    """Watches the queues of some performers."""

    def __init__(self, performers: Sequence[Performer], gateway: Gateway, clock: Clock) -> None:
        self._performers = performers
        self._admin = gateway.admin()
        self._looks = looks_needed(gateway)
        self._clock = clock
        self._warned_of: str | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no pump has anything in hand."""
        return all(each.pump is None or each.pump.is_idle for each in self._performers)

    async def wait(self) -> None:
        """Return once every queue that is waited for is empty and nothing is in hand.

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
        for queue in worked_on:
            if await self._may_have_messages(queue):
                return False
        for each in awaited:
            queue = each.subscription.queue
            if queue not in worked_on and await self._may_have_messages(queue):
                self._warn(each)
                return False
        return True

    async def _may_have_messages(self, queue: str) -> bool:
        try:
            stats = await self._admin.stats(queue)
        except QueueNotFound:
            return False
        except AccessDenied:
            raise
        except GatewayError:
            return True  # Who cannot be asked may have messages.
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
