"""Leases: what one process holds of one queue and until when, and how it is settled.

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

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Generic, TypeVar

from msgspec import Struct

from pump.clock import Clock, Timer
from pump.errors import GatewayError, InvalidReceipt
from pump.message import Delivery
from pump.outcome import Refusal, Settlement


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


# Settling: each settlement takes its lease, is performed, and then spends it or gives it back.
#
# A gateway says how a batch is performed; what is refused, and what may be tried again, is the same
# for all of them.

Failures = Mapping[str, GatewayError]
"""By receipt, why a settlement was not applied. A final one (`Refusal.is_final`) spends the lease,
after another one the settlement may be tried again. What is not named was applied."""

Perform = Callable[[Sequence[Settlement], Sequence[L]], Awaitable[Failures]]
"""Applies settlements, each with its lease, side by side in two lists: nothing is made for each.

Raises when nothing is known of the whole batch; all of it may then be tried again."""

Start = Callable[[Coroutine[Any, Any, list[Refusal]]], "asyncio.Task[list[Refusal]]"]


class LeaseSettler(Generic[L]):
    """Settles what was received from one queue, each delivery once and as long as it is leased."""

    def __init__(
        self,
        queue: str,
        leases: Leases[L],
        perform: Perform[L],
        *,
        clock: Clock,
        start: Start | None = None,
    ) -> None:
        """`start` runs the work in a task of its own, for brokers whose calls must not be cancelled
        in the middle: settling then goes on in the background.
        """
        self._queue = queue
        self._leases = leases
        self._perform = perform
        self._clock = clock
        self._start = start

    async def settle(self, settlements: Sequence[Settlement]) -> list[Refusal]:
        """Apply each once; see `ConsumerPort.settle`."""
        now_s = self._clock.now_s()
        taken: list[Settlement] = []
        leases: list[L] = []
        refusals: list[Refusal] = []
        take = self._leases.take
        for each in settlements:
            lease = take(each.delivery.receipt, now_s)
            if lease is None:
                refusals.append(self.refusal(each.delivery))
            else:
                taken.append(each)
                leases.append(lease)
        if taken:
            work = self.settle_taken(taken, leases)
            refusals += await (work if self._start is None else asyncio.shield(self._start(work)))
        return refusals

    async def settle_taken(
        self, settlements: Sequence[Settlement], leases: Sequence[L]
    ) -> list[Refusal]:
        """The same for leases that are taken already."""
        try:
            failures = await self._perform(settlements, leases)
        except BaseException:
            # Unknown whether they were applied. Kept as taken, they could never be settled.
            for each in settlements:
                self._leases.give_back(each.delivery.receipt)
            raise
        refusals: list[Refusal] = []
        spend = self._leases.spend
        for each, lease in zip(settlements, leases, strict=True):
            receipt = each.delivery.receipt
            if failures and (error := failures.get(receipt)) is not None:
                refusals.append(Refusal(each.delivery, error))
                if not refusals[-1].is_final:
                    self._leases.give_back(receipt)
                    continue
            # What was performed by holding it back is not taken any more, and is held on.
            if lease.is_taken:
                spend(receipt)
        return refusals

    def refusal(self, delivery: Delivery) -> Refusal:
        """Refuse a delivery whose receipt is not valid."""
        return Refusal(delivery, self.invalid(delivery.receipt))

    def invalid(self, receipt: str) -> InvalidReceipt:
        """What is wrong with a receipt that is over, gone, or was never given."""
        return InvalidReceipt(self._queue, receipt)
