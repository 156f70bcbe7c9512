"""Leases: what one process holds of one queue, and until when. Pure, but for a timer.

Brokers forgive too much, or know no end of a delivery at all. So the end of each lease is kept
here, and a receipt is good for one settlement.

| a lease is | when                                    | and then                          |
|------------|-----------------------------------------|-----------------------------------|
| held       | received, and its end is ahead          | it may be settled or extended     |
| taken      | a settlement of it is on its way        | a second settlement is refused    |
| held again | the settlement did not come about       |                                   |
| over       | its end has passed, or it ended early   | every use of it is refused        |
| gone       | settled, refused for good, or forgotten | every use of it is refused        |
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from math import inf
from typing import Generic, TypeVar

from msgspec import Struct

from pump.clock import Clock, Timer


class Lease(Struct, eq=False):
    """The right to one delivery. Gateways add what they need to settle it."""

    ends_at_s: float
    is_taken: bool = False
    watched_at_s: float = inf
    """When `WatchedLeases` looks at it next."""

    @property
    def looks_at_s(self) -> float:
        """When something has to be done about it."""
        return self.ends_at_s

    def is_over(self, now_s: float) -> bool:
        """Whether every use of it is refused."""
        return self.ends_at_s <= now_s


L = TypeVar("L", bound=Lease)


class Leases(Generic[L]):
    """The leases of one queue by receipt, whichever consumer received them."""

    def __init__(self) -> None:
        self._held: dict[str, L] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, receipt: object) -> bool:
        return receipt in self._held

    def __iter__(self) -> Iterator[L]:
        return iter(list(self._held.values()))

    def hold(self, receipt: str, lease: L) -> None:
        """Enter what was received."""
        self._held[receipt] = lease

    def find(self, receipt: str, now_s: float) -> L | None:
        """The lease, unless it is over or gone; it may be taken."""
        lease = self._held.get(receipt)
        return None if lease is None or lease.is_over(now_s) else lease

    def take(self, receipt: str, now_s: float) -> L | None:
        """The lease, taken for a settlement; None when it is taken already, over or gone."""
        lease = self._held.get(receipt)
        if lease is None or lease.is_taken or lease.is_over(now_s):
            return None
        lease.is_taken = True
        return lease

    def give_back(self, receipt: str) -> None:
        """The settlement did not come about: it may be tried again, as long as the lease lasts."""
        lease = self._held.get(receipt)
        if lease is not None:
            lease.is_taken = False

    def spend(self, receipt: str) -> None:
        """The message is settled, or no longer ours."""
        self._held.pop(receipt, None)

    def extend(self, receipt: str, ends_at_s: float) -> None:
        """The broker granted another end; says nothing of a lease that is gone meanwhile."""
        lease = self._held.pop(receipt, None)
        if lease is not None:
            lease.ends_at_s = ends_at_s
            self._held[receipt] = lease

    def forget_over(self, now_s: float) -> None:
        """Forget what was not settled in time. Ends come in nearly rising order, so those that are
        over lie in front, and looking stops at the first that is not, or is being settled.
        """
        while self._held:
            receipt, lease = next(iter(self._held.items()))
            if lease.is_taken or not lease.is_over(now_s):
                return
            del self._held[receipt]


class WatchedLeases(Leases[L]):
    """Leases that something has to be done about when they end, where the broker does not.

    Each is looked at no later than it asks for, and only then given to `act`. Opens no timer before
    something is held.
    """

    def __init__(self, clock: Clock, act: Callable[[list[L]], object]) -> None:
        super().__init__()
        self._clock = clock
        self._act = act
        self._alarm = Alarm(clock, self._look)
        self._is_watching = False
        self._looks: list[tuple[float, str]] = []

    def hold(self, receipt: str, lease: L) -> None:
        super().hold(receipt, lease)
        self._is_watching = True
        self.watch(receipt)

    def give_back(self, receipt: str) -> None:
        super().give_back(receipt)
        self.watch(receipt)

    def watch(self, receipt: str, *, at_s: float = -inf) -> None:
        """Look at it when it asks for that, but not before `at_s`."""
        lease = self._held.get(receipt)
        if lease is None:
            return
        look_s = max(lease.looks_at_s, at_s)
        if look_s < lease.watched_at_s:
            lease.watched_at_s = look_s
            heapq.heappush(self._looks, (look_s, receipt))
            if self._is_watching:
                self._alarm.ring_by(look_s)

    def unwatch(self) -> None:
        """The gateway is closed: look at nothing before something is held again."""
        self._is_watching = False
        self._alarm.cancel()

    def _look(self) -> None:
        if due := self._due(self._clock.now_s()):
            self._act(due)
        if (look_s := self._next_look_s()) is not None:
            self._alarm.ring_by(look_s)

    def _next_look_s(self) -> float | None:
        while self._looks:
            look_s, receipt = self._looks[0]
            lease = self._held.get(receipt)
            if lease is not None and lease.watched_at_s == look_s:
                return look_s
            heapq.heappop(self._looks)
        return None

    def _due(self, now_s: float) -> list[L]:
        """No longer watched. What is being settled is left out until it is given back."""
        due: list[L] = []
        while (look_s := self._next_look_s()) is not None and look_s <= now_s:
            _, receipt = heapq.heappop(self._looks)
            lease = self._held[receipt]
            lease.watched_at_s = inf
            if lease.is_taken:
                continue
            if lease.looks_at_s > now_s:
                self.watch(receipt)
            else:
                due.append(lease)
        return due


class Alarm:
    """One timer for the earliest of several moments; on an event loop."""

    def __init__(self, clock: Clock, ring: Callable[[], object]) -> None:
        self._clock = clock
        self._ring_now = ring
        self._timer: Timer | None = None
        self._at_s = inf

    def ring_by(self, at_s: float) -> None:
        """Ring then, unless it rings before."""
        if at_s >= self._at_s:
            return
        self.cancel()
        self._at_s = at_s
        delay_s = max(0.0, at_s - self._clock.now_s())
        self._timer = self._clock.call_later(delay_s, self._ring)

    def ring_at(self, at_s: float) -> None:
        """Ring then, and not before."""
        self.cancel()
        self.ring_by(at_s)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at_s = None, inf

    def _ring(self) -> None:
        self._timer, self._at_s = None, inf
        self._ring_now()
