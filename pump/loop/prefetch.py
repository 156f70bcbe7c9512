"""Prefetch: how many messages may wait in hand, when nobody said. Pure.

| seen                                                       | then                              |
|------------------------------------------------------------|-----------------------------------|
| a worker has nothing to do, nothing waits, and there is no | twice as many: the hand is too    |
| credit to ask for more, though the queue gave all asked    | small for the way to the broker   |
| what a full receive brought did not all start in 200 ms    | half as many, so that other       |
|                                                            | consumers find something to do    |
| anything else                                              | as many as now                    |

No round trip is measured: near or far, a broker that keeps the workers busy is fast enough.
"""

from __future__ import annotations

import attrs

from ..capabilities import Capabilities
from ..strategy import Hybrid, Retry
from ..subscription import Subscription

_SLOW_S = 0.2


@attrs.frozen
class AttemptBudget:
    """Which messages had better not wait in hand, where handing one back costs it an attempt.

    A receive that brings one of them has the pump hold no more than it can run, until one brings
    none. Before the first receive it is not known what comes.
    """

    max_retries: int | None
    max_receive_count: int | None

    @classmethod
    def of(cls, subscription: Subscription, capabilities: Capabilities) -> AttemptBudget | None:
        """None where handing back costs nothing, or attempts are not limited."""
        failure = subscription.failure
        # Without a retry there is none to lose: a message that comes is run once in any case.
        max_retries = (failure.max_retries or None) if isinstance(failure, Retry | Hybrid) else None
        limit = subscription.max_receive_count
        if capabilities.has_uncounted_abandon or (max_retries is None and limit is None):
            return None
        return cls(max_retries, limit)

    def is_nearly_spent(self, attempt: int) -> bool:
        """Whether one more hand-back leaves a message its last run, or none."""
        is_last_retry = self.max_retries is not None and attempt >= self.max_retries
        limit = self.max_receive_count
        return is_last_retry or (limit is not None and attempt >= limit - 1)


class Prefetch:
    """Follows the pace of the handlers and of the broker. Never less than the `least` given."""

    def __init__(self, size: int, *, most: int) -> None:
        self.size = size
        self._most = most
        self._is_there_more = False
        self._received_count = 0
        # The full receive that is being watched: when it came, and how many had come with it.
        self._watched_at_s: float | None = None
        self._watched_count = 0

    def received(self, count: int, *, asked: int, waiting: int, now_s: float, least: int) -> None:
        """A receive brought `count` messages, while `waiting` others were not yet started."""
        started_count = self._received_count - waiting
        self._received_count += count
        self._is_there_more = count == asked
        if not self._is_there_more:
            return
        if self._watched_at_s is not None and started_count < self._watched_count:
            if now_s - self._watched_at_s <= _SLOW_S:
                return
            self.size = max(least, self.size // 2)
        self._watched_at_s = now_s
        self._watched_count = self._received_count

    def ran_dry(self, *, least: int) -> None:
        """A worker has nothing to do, and there is no credit to ask for more."""
        if self._is_there_more:
            self.size = max(least, min(2 * self.size, self._most))
            # Once for a full receive: whether this helped shows with the next.
            self._is_there_more = False
