"""A leased reader: what work that ends, such as browsing or redriving, has received of a queue.

All of it is kept under lease, so that no message comes twice, until it is removed or handed back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from .clock import Clock
from .loop.leases import LeaseBook, LeaseKeeper
from .message import Delivery, Message
from .observability import vocabulary
from .outcome import ABANDON, Action, Refusal, Settlement
from .ports import Gateway
from .retrying import settle_all
from .subscription import MakeChannels, Subscription


class LeasedReader:
    """`async with`: whatever ends the block, cancellation too, what is still held is handed back.

    What cannot be handed back, because the broker is away or because handing back is cancelled,
    comes back by itself when its lease ends.
    """

    def __init__(
        self, gateway: Gateway, queue: str, *, lease: timedelta, clock: Clock, log: Any
    ) -> None:
        can = gateway.capabilities
        subscription = Subscription(
            queue=queue, request=Message, lease=lease, make_channels=MakeChannels.ASSUME
        )
        self.lost_count = 0
        """Leases that were lost: another consumer may have the message now."""
        self._queue = queue
        self._clock = clock
        self._log = log
        self._lease_s = lease.total_seconds()
        self._chunk = can.settle_batch * can.max_settle_calls
        self._port = gateway.consumer(subscription)
        self._book = LeaseBook(lease_s=self._lease_s, renew=True, max_lease_s=can.max_lease_s)
        self._keeper = LeaseKeeper(
            self._book,
            self._port,
            subscription,
            batch=self._chunk,
            clock=clock,
            on_lost=self._lose,
        )
        self._keeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._book)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def start(self) -> None:
        """Keep leases from now on."""
        self._keeping = asyncio.create_task(self._keeper.run(), name=f"leases of {self._queue}")

    async def aclose(self) -> None:
        """Hand back what is held, and close the port."""
        try:
            if self._keeping is not None:
                # An extension that is under way would hide again what has been handed back.
                self._keeping.cancel()
                await asyncio.wait([self._keeping])
            await self._hand_back()
        finally:
            await self._port.aclose()

    def holds(self, delivery: Delivery) -> bool:
        """Whether its lease is still ours, as far as we know."""
        return self._keeper.holds(delivery)

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """One receive; see `ConsumerPort`."""
        deliveries = await self._port.receive(max_count=max_count, wait_s=wait_s)
        self._keeper.watch(deliveries)
        return deliveries

    async def settle(
        self, deliveries: Sequence[Delivery], action: Action
    ) -> dict[Delivery, Refusal]:
        """Settle these, again and again within reason, and return what was refused.

        What was settled or lost is held no longer.
        """
        settlements = [Settlement(each, action) for each in deliveries]
        refusals = await self._settle_all(settlements)
        refused = {each.delivery: each for each in refusals}
        self.lost_count += sum(each.is_final for each in refusals)
        for each in deliveries:
            if each not in refused or refused[each].is_final:
                self._keeper.forget(each)
        return refused

    async def _hand_back(self) -> None:
        held = [Settlement(each, ABANDON) for each in self._book.held()]
        try:
            # Afterwards there is nothing left to hand back.
            async with self._clock.timeout(self._lease_s):
                unsettled = await self._settle_all(held)
        except TimeoutError as error:
            self._warn(len(held), error)
            return
        kept = [each for each in unsettled if not each.is_final]
        if kept:
            self._warn(len(kept), kept[0].error)

    async def _settle_all(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await settle_all(self._port, settlements, chunk=self._chunk, clock=self._clock)

    def _lose(self, delivery: Delivery) -> None:
        self.lost_count += 1

    def _warn(self, count: int, error: BaseException) -> None:
        self._log.warning(
            vocabulary.SETTLE_FAILED, queue=self._queue, count=count, error=repr(error)
        )
