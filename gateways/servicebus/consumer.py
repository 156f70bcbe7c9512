"""The consumer port of one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pump.clock import Clock
from pump.errors import UnsupportedOperation
from pump.message import Delivery
from pump.outcome import Refusal, Settlement

from .errors import RequestRefused
from .leases import Lease, Terms, lease_of
from .settling import Settling
from .tap import Pulled, Tap


class ServiceBusConsumer:
    """Receives from one queue and settles what it received."""

    def __init__(
        self, queue: str, terms: Terms, tap: Tap, settling: Settling, *, clock: Clock
    ) -> None:
        self._queue = queue
        self._terms = terms
        self._tap = tap
        self._settling = settling
        self._clock = clock

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """What was delivered too often is moved away on the way, and not returned.

        Waits up to half a second longer where a link has to be opened first.
        """
        ends_at_s = self._clock.now_s() + wait_s
        while True:
            pulled = await self._pulled(max_count, ends_at_s)
            leases = [self._lease(each) for each in pulled]
            for lease in leases:
                self._settling.hold(lease)
            limit = self._terms.max_receive_count
            spent = [each for each in leases if limit is not None and each.delivery.attempt > limit]
            if spent:
                await self._moved(spent, leases)
            ready = [lease.delivery for lease in leases if lease not in spent]
            if ready or not pulled:
                return ready

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Returns when the service has confirmed it; see `settling`."""
        return await self._settling.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """There is no end to extending; locks are renewed by the queue's `LockDuration`."""
        return await self._settling.extend(deliveries, lease_s)

    async def aclose(self) -> None:
        """Nothing to let go of: connections are the gateway's."""

    async def _pulled(self, max_count: int, ends_at_s: float) -> Sequence[Pulled]:
        try:
            return await self._tap.receive(max_count, ends_at_s)
        except RequestRefused as error:
            if "session" not in error.detail.lower():
                raise
            raise UnsupportedOperation(
                "sb",
                f"receiving from {self._queue!r}",
                "the queue has sessions, which are accepted: Consumer.accept_session()",
            ) from error

    async def _moved(self, spent: Sequence[Lease], leases: Sequence[Lease]) -> None:
        try:
            await self._settling.dead_letter(spent)
        except asyncio.CancelledError:
            self._settling.hand_back_later([each for each in leases if each not in spent])
            raise

    def _lease(self, pulled: Pulled) -> Lease:
        return lease_of(
            pulled.arrival,
            queue=self._queue,
            terms=self._terms,
            locked_at_s=pulled.locked_at_s,
            now_s=self._clock.now_s(),
        )
