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
from .leased_reader import LeasedReader
from .message import Delivery, Message
from .observability.log import get_logger
from .ports import Gateway
from .retrying import asked_again
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
    reader = LeasedReader(gateway, queue, lease=lease, clock=clock, log=_log)
    reader.start()
    try:
        looking = _Looking(gateway, reader, clock)
        async with aclosing(looking.batches(_MOST if max_count is None else max_count)) as batches:
            yield batches
    finally:
        await to_the_end(reader.aclose())


class _Looking:
    """Browsing by receiving, until nothing new comes."""

    def __init__(self, gateway: Gateway, reader: LeasedReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._receive_batch = gateway.capabilities.receive_batch
        self._max_pollers = gateway.capabilities.max_pollers
        self._known: set[str | int] = set()

    async def batches(self, most: int) -> AsyncGenerator[Sequence[Seen]]:
        """What is received."""
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
        return await asked_again(
            lambda: self._reader.receive(max_count=max_count, wait_s=_LOOK_S), clock=self._clock
        )

    def _fresh(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Without those that come again because their lease was lost."""
        fresh = [each for each in deliveries if each.broker_id not in self._known]
        self._known.update(each.broker_id for each in fresh if each.broker_id is not None)
        return fresh


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
