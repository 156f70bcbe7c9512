"""Slicing: how many tasks the next slice has, and whether there is one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from math import ceil

import attrs

from ...backoff import Backoff
from ...ports import QueueStats
from ...subscription import Subscription

_PROBE = Backoff(initial=timedelta(seconds=5), maximum=timedelta(minutes=1), jitter=0)


@attrs.frozen(kw_only=True)
class Depth:
    """What is in the queues, all together; a provider's estimate where it only estimates."""

    ready: int = 0
    """To be received now."""
    in_flight: int = 0
    delayed: int = 0

    @classmethod
    def of(cls, stats: Iterable[QueueStats]) -> Depth:
        """The sum over queues."""
        known = list(stats)
        return cls(
            ready=sum(each.visible for each in known),
            in_flight=sum(each.in_flight for each in known),
            delayed=sum(each.delayed for each in known),
        )

    @property
    def total(self) -> int:
        """All that is not settled yet."""
        return self.ready + self.in_flight + self.delayed


def handful(subscriptions: Iterable[Subscription], *, flush: int) -> int:
    """The messages that keep one task busy: as many as it handles at once."""
    return max(1, sum(min(each.concurrency, flush) for each in subscriptions))


def count_tasks(ready: int, *, handful: int, slots: int, most: int | None) -> int:
    """The tasks of the next slice: one for every handful of messages, within what there is room
    for; none when nothing can be received. Asked for more tasks than slots, as many as asked for.
    """
    if ready <= 0:
        return 0
    return min(ceil(ready / handful), max(1, slots) if most is None else most)


@attrs.define
class Probing:
    """When to receive though nothing is said to be ready, only in flight.

    Some brokers, as NATS, count a message whose lease ran out, or whose retry is due, as in flight
    until somebody receives it; and between slices nobody does.
    """

    _since_s: float | None = None
    _count: int = 0

    def is_due(self, depth: Depth, now_s: float) -> bool:
        """Whether it has been so for long enough; the next time it takes longer."""
        if depth.ready or not depth.in_flight:
            self._since_s, self._count = None, 0
            return False
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < _PROBE.delay_s(self._count + 1, 0.0):
            return False
        self._since_s, self._count = None, self._count + 1
        return True
