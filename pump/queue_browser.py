"""Queue browser: seeing what is in a queue without taking it.

Where the provider can be asked, it is asked. Elsewhere, as on SQS, a look is a receive: the survey
then holds every lease until it ends, so that no message comes twice, and hands all of them back.
Each of these messages has one delivery more, which counts towards a limit that the queue may set
(`max_receive_count`), and no other consumer receives it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import attrs

from .clock import SYSTEM_CLOCK, Clock
from .errors import ConfigurationError
from .loop.leases import LeaseBook, LeaseKeeper
from .message import Delivery, Message
from .observability import vocabulary
from .observability.log import get_logger
from .outcome import ABANDON, Settlement
from .ports import ConsumerPort, Gateway
from .retrying import asked_again, settle_all
from .subscription import MakeChannels, Subscription
from .tasks import to_the_end

_log = get_logger("pump.survey")
_LOOK_S = 1.0
_EMPTY_LOOKS = 2
"""So many receives in a row without a new message, and the queue has no more to show."""
_MOST = 10_000_000


@attrs.frozen(kw_only=True)
class Seen:
    """A message that was seen in a queue."""

    message: Message
    attempt: int | None = None
    """Deliveries so far, this look included where it was one; None where that is unknown."""
    broker_id: str | int | None = None


@asynccontextmanager
async def browse(
    gateway: Gateway,
    queue: str,
    *,
    max_count: int | None = None,
    lease: timedelta = timedelta(minutes=2),
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncIterator[AsyncIterator[Sequence[Seen]]]:
    """Iterate over batches of what is in an open gateway's queue; nothing is gone afterwards.

    Whatever ends the block, cancellation too, everything that was held is handed back before it
    is left. What cannot be handed back, because the broker is away, comes back by itself when its
    lease ends.

    What is delayed, or in flight elsewhere, is not seen; of a FIFO queue whose provider keeps
    back a group while one of it is held, only the first of each group may be. `QueueNotFound`
    names the queue; `ConnectionFailed` when the broker stays away.
    """
    if max_count is not None and max_count < 0:
        raise ConfigurationError("max_count", max_count, "use 0 or more, or None for all")
    if gateway.capabilities.has_peek:
        async with aclosing(_peeked(gateway, queue, max_count)) as batches:
            yield batches
        return
    looking = _Looking(gateway, queue, lease, clock)
    keeping = asyncio.create_task(looking.keeper.run(), name="survey leases")
    try:
        async with aclosing(looking.batches(_MOST if max_count is None else max_count)) as batches:
            yield batches
    finally:
        keeping.cancel()
        await to_the_end(looking.hand_back(keeping))


class _Looking:
    """Browsing by receiving: the reader, and what it holds."""

    def __init__(self, gateway: Gateway, queue: str, lease: timedelta, clock: Clock) -> None:
        capabilities = gateway.capabilities
        subscription = Subscription(
            queue=queue, request=Message, lease=lease, make_channels=MakeChannels.ASSUME
        )
        self._queue = queue
        self._clock = clock
        self._lease_s = lease.total_seconds()
        self._receive_batch = capabilities.receive_batch
        self._max_pollers = capabilities.max_pollers
        self._chunk = capabilities.settle_batch * capabilities.max_settle_calls
        self._port: ConsumerPort = gateway.consumer(subscription)
        self._book = LeaseBook(
            lease_s=self._lease_s, renew=True, max_lease_s=capabilities.max_lease_s
        )
        self._known: set[str | int] = set()
        self.keeper = LeaseKeeper(
            self._book,
            self._port,
            subscription,
            batch=self._chunk,
            clock=clock,
            # Another consumer may have the message now; it was seen all the same.
            on_lost=lambda delivery: None,
        )

    async def batches(self, most: int) -> AsyncGenerator[Sequence[Seen]]:
        """What is received, until nothing new comes."""
        left, empty_count, is_full = most, 0, False
        while left > 0 and empty_count < _EMPTY_LOOKS:
            received = await self._look(left, self._max_pollers if is_full else 1)
            is_full = len(received) >= min(left, self._receive_batch)
            fresh = self._fresh(received)
            left -= len(fresh)
            # Leases that are lost again and again must not make browsing endless.
            empty_count = 0 if fresh else empty_count + 1
            if fresh:
                yield [_seen(each) for each in fresh]

    async def hand_back(self, keeping: asyncio.Task[None]) -> None:
        """Give everything back that is still held, as far as the broker can be told."""
        try:
            # An extension that is under way would hide again what has been handed back.
            await asyncio.wait([keeping])
            held = [Settlement(each, ABANDON) for each in self._book.held()]
            # Afterwards there is nothing left to hand back.
            async with self._clock.timeout(self._lease_s):
                unsettled = await settle_all(self._port, held, chunk=self._chunk, clock=self._clock)
            kept = [each for each in unsettled if not each.is_final]
            if kept:
                self._warn(len(kept), kept[0].error)
        except TimeoutError as error:
            self._warn(len(self._book), error)
        finally:
            await self._port.aclose()

    async def _look(self, most: int, max_pollers: int) -> list[Delivery]:
        batch = self._receive_batch
        counts = [min(batch, most - at) for at in range(0, min(most, batch * max_pollers), batch)]
        answers = await asyncio.gather(*map(self._receive, counts), return_exceptions=True)
        deliveries: list[Delivery] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            deliveries += answer
        return deliveries

    async def _receive(self, max_count: int) -> Sequence[Delivery]:
        deliveries = await asked_again(
            lambda: self._port.receive(max_count=max_count, wait_s=_LOOK_S), clock=self._clock
        )
        self.keeper.watch(deliveries)
        return deliveries

    def _fresh(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Without those that come again because their lease was lost."""
        fresh = [each for each in deliveries if each.broker_id not in self._known]
        self._known.update(each.broker_id for each in fresh if each.broker_id is not None)
        return fresh

    def _warn(self, count: int, error: BaseException) -> None:
        _log.warning(vocabulary.SETTLE_FAILED, queue=self._queue, count=count, error=repr(error))


async def _peeked(
    gateway: Gateway, queue: str, max_count: int | None
) -> AsyncGenerator[Sequence[Seen]]:
    messages = await gateway.admin().peek(
        queue, max_count=_MOST if max_count is None else max_count
    )
    if messages:
        yield [Seen(message=message) for message in messages]


def _seen(delivery: Delivery) -> Seen:
    return Seen(message=delivery.message, attempt=delivery.attempt, broker_id=delivery.broker_id)
