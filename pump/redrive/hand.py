"""Hand: dead letters that were received, kept under lease until they are removed or handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

import attrs

from ..clock import Clock
from ..errors import GatewayError, Throttled
from ..loop.keeper import LeaseKeeper
from ..loop.leases import LeaseBook
from ..message import Delivery, Message
from ..observability import vocabulary
from ..observability.log import get_logger
from ..outcome import ABANDON, ACK, Settlement
from ..patience import TRIES, is_passing, pause, settle_all
from ..ports import Gateway
from ..subscription import MakeChannels, Subscription

_log = get_logger("pump.redrive")
_LOOK_S = 1.0


@attrs.frozen(kw_only=True)
class Removal:
    """What has left its queue, and why something else could not for now."""

    gone: tuple[Delivery, ...]
    error: GatewayError | None = None


class Hand:
    """`async with Hand(…)`: at the end, whatever it still holds is handed back."""

    def __init__(
        self, gateway: Gateway, queue: str, *, lease_s: float, batch: int, clock: Clock
    ) -> None:
        can = gateway.capabilities
        lease = timedelta(seconds=lease_s)
        subscription = Subscription(
            queue=queue, request=Message, lease=lease, make_channels=MakeChannels.ASSUME
        )
        self._port = gateway.consumer(subscription)
        self._clock = clock
        self._chunk = can.settle_batch * can.max_settle_calls
        self._most = min(can.receive_batch, batch)
        self._poller_count = min(can.max_pollers, -(-batch // can.receive_batch))
        self._book = LeaseBook(lease_s=lease_s, renew=True, max_lease_s=can.max_lease_s)
        self._keeper = LeaseKeeper(
            self._book,
            self._port,
            subscription,
            batch=self._chunk,
            clock=clock,
            on_lost=self._lose,
        )
        self._keeping: asyncio.Task[None] | None = None
        self.lost_count = 0
        self.is_full = False
        """The broker gives no more for as long as so many are held."""

    def __len__(self) -> int:
        return len(self._book)

    async def __aenter__(self) -> Self:
        self._keeping = asyncio.create_task(self._keeper.run(), name="redrive leases")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    async def receive(self) -> list[Delivery]:
        """What comes within a second. A broker that is away is asked again a few times, and then
        its error is raised; one that gives no more for what is held leaves `is_full` behind.
        """
        for attempt in range(1, TRIES + 1):
            try:
                received = await self._receive()
            except GatewayError as error:
                if attempt == TRIES and isinstance(error, Throttled) and len(self):
                    self.is_full = True
                    break
                if attempt == TRIES or not is_passing(error):
                    raise
            else:
                self._keeper.watch(received)
                return received
            await pause(attempt, self._clock)
        return []

    async def remove(self, deliveries: Sequence[Delivery]) -> Removal:
        """Remove them from their queue, as far as they are held.

        What the broker owns again will be delivered again. What it could not be told of, it has
        been asked for a few times.
        """
        held = [each for each in deliveries if self.holds(each)]
        acks = [Settlement(each, ACK) for each in held]
        refusals = await settle_all(self._port, acks, chunk=self._chunk, clock=self._clock)
        refused = {each.delivery: each for each in refusals}
        self.lost_count += sum(each.is_final for each in refusals)
        for each in held:
            if each not in refused or refused[each].is_final:
                self._keeper.forget(each)
        return Removal(
            gone=tuple(each for each in held if each not in refused),
            error=next((each.error for each in refusals if not each.is_final), None),
        )

    async def _receive(self) -> list[Delivery]:
        # The others bring what is there at this moment, and never wait for more.
        waits_s = [_LOOK_S] + [0.0] * (self._poller_count - 1)
        calls = [self._port.receive(max_count=self._most, wait_s=wait_s) for wait_s in waits_s]
        if len(calls) == 1:
            return list(await calls[0])
        answers = await asyncio.gather(*calls, return_exceptions=True)
        received = [
            each for answer in answers if not isinstance(answer, BaseException) for each in answer
        ]
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        # What the others brought is in hand: it must be kept, whatever became of one call.
        if failures and not received:
            raise failures[0]
        return received

    async def _hand_back(self) -> None:
        held = [Settlement(each, ABANDON) for each in self._book.held()]
        unsettled = await settle_all(self._port, held, chunk=self._chunk, clock=self._clock)
        kept = [each for each in unsettled if not each.is_final]
        if kept:
            # Their leases run out by themselves.
            error = repr(kept[0].error)
            _log.warning(vocabulary.SETTLE_FAILED, error=error, count=len(kept))

    def _lose(self, delivery: Delivery) -> None:
        self.lost_count += 1
