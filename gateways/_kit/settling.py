"""Settling: each settlement takes its lease, is performed, and then spends it or gives it back.

A gateway says how a batch is performed; what is refused, and what may be tried again, is the same
for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic

from pump.clock import Clock
from pump.errors import GatewayError, InvalidReceipt
from pump.message import Delivery
from pump.outcome import Refusal, Settlement

from .leases import L, Leases

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
