"""Intake: from the queue into the spool; a message is acked when its segment is on the disk.

What is acked is in the spool. What is in the spool and was not acked, because this process or one
before it died in between, comes again, is known by its broker's id, and is acked without a second
copy. Where the broker has no such id, or the segment is gone by then, the copy stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs

from ...clock import Clock
from ...errors import GatewayError
from ...message import Delivery, Message
from ...observability import vocabulary
from ...observability.log import get_logger
from ...outcome import ACK, Refusal, Settlement
from ...patience import is_passing, pause, settle_all
from ...ports import Gateway
from ...subscription import MakeChannels, Subscription
from .columns import Spotted, text
from .options import StreamOptions
from .spool import Entry, Spool

_log = get_logger("pump.spark")
_MAX_SEGMENT_ROWS = 10_000
_MAX_SEGMENT_BYTES = 128 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Filled:
    """What one filling brought."""

    row_count: int
    is_empty: bool
    """It ended because no more messages came."""


class Intake:
    """Receives from one queue into an open spool, through a gateway that it opens when needed."""

    def __init__(
        self, gateway: Gateway, options: StreamOptions, spool: Spool, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._can = gateway.capabilities
        self._lease_s = options.lease.total_seconds()
        self._queue = options.place.queue
        self._spool = spool
        self._clock = clock
        self._port = gateway.consumer(
            Subscription(
                queue=self._queue,
                request=Message,
                lease=options.lease,
                make_channels=MakeChannels.ASSUME,
            )
        )
        self._unsettled: dict[str, int] = {}

    async def open(self) -> None:
        """Learn what may be in the spool and not acked."""
        self._unsettled = await asyncio.to_thread(self._spool.unsettled_keys)

    async def aclose(self) -> None:
        """Let go of the queue."""
        await self._port.aclose()

    async def depth(self) -> int | None:
        """How many messages could be received now, by the broker's count; None if it gives none."""
        try:
            await self._gateway.open()
            return (await self._gateway.admin().stats(self._queue)).visible
        except GatewayError as error:
            _log.warning(vocabulary.PROBE_FAILED, queue=self._queue, error=repr(error))
            return None

    async def fill(self, most: int, *, wait_s: float, linger_s: float | None) -> Filled:
        """Spool up to `most` messages: wait for the first, and go on for `linger_s` after it,
        None for as long as there are more.

        A broker that is away is waited for as long as for a message; its error is raised if
        there is no `linger_s`, as it must not be taken for an empty queue.
        """
        count, first_at_s, wait = 0, 0.0, wait_s
        while count < most:
            round_ = await self._round(min(most - count, _MAX_SEGMENT_ROWS), wait, linger_s)
            if not round_:
                return Filled(row_count=count, is_empty=True)
            count += await self._spooled(round_)
            now_s = self._clock.now_s()
            first_at_s = first_at_s or now_s
            if linger_s is not None:
                wait = first_at_s + linger_s - now_s
                if wait <= 0:
                    break
        return Filled(row_count=count, is_empty=False)

    def forget(self, until: int) -> None:
        """Segments up to this one are gone."""
        self._unsettled = {key: at for key, at in self._unsettled.items() if at > until}

    # Receiving.

    async def _round(self, most: int, wait_s: float, linger_s: float | None) -> list[Delivery]:
        """As many as can be had at once, up to `most`, after waiting for the first."""
        received = await self._first(min(most, self._can.receive_batch), wait_s, linger_s)
        if not received or len(received) >= most:
            return received
        if len(received) < self._can.receive_batch and linger_s:
            # Few come at a time: a moment's company saves a segment each.
            await self._clock.sleep(linger_s / 10)
        # What was received first must be acked long before its lease ends.
        basket = _Basket(received, most, self._clock.now_s() + self._lease_s / 4)
        pollers = min(self._can.max_pollers, -(-basket.room // self._can.receive_batch))
        async with asyncio.TaskGroup() as group:
            for _ in range(pollers):
                group.create_task(self._poll(basket), name="spark spool poll")
        return basket.received

    async def _first(self, max_count: int, wait_s: float, linger_s: float | None) -> list[Delivery]:
        ends_at_s = self._clock.now_s() + wait_s
        attempt = 0
        while True:
            left_s = max(0.0, ends_at_s - self._clock.now_s())
            try:
                await self._gateway.open()
                return list(await self._port.receive(max_count=max_count, wait_s=left_s))
            except GatewayError as error:
                attempt += 1
                is_late = self._clock.now_s() >= ends_at_s
                if not is_passing(error) or (is_late and linger_s is None):
                    raise
                _log.warning(
                    vocabulary.RECEIVE_FAILED, queue=self._queue, tries=attempt, error=repr(error)
                )
                if is_late:
                    return []
            await pause(attempt, self._clock)

    async def _poll(self, basket: _Basket) -> None:
        while (asked := basket.take_room(self._can.receive_batch, self._clock.now_s())) > 0:
            try:
                deliveries = await self._port.receive(max_count=asked, wait_s=0.0)
            except GatewayError:
                # The next round meets it again, and with nothing in hand.
                return
            basket.put(deliveries, asked)
            if not deliveries:
                return

    # Spooling.

    async def _spooled(self, deliveries: Sequence[Delivery]) -> int:
        fresh = [each for each in deliveries if _key(each) not in self._unsettled]
        if fresh:
            entries = [_entry(each, self._queue) for each in fresh]
            segment = await asyncio.to_thread(self._spool.write, entries)
            await asyncio.to_thread(self._spool.publish, segment)
            keys = [key for each in fresh if (key := _key(each)) is not None]
            self._unsettled |= dict.fromkeys(keys, segment.number)
        await self._ack(deliveries)
        return len(fresh)

    async def _ack(self, deliveries: Sequence[Delivery]) -> None:
        settlements = [Settlement(each, ACK) for each in deliveries]
        chunk = self._can.settle_batch * self._can.max_settle_calls
        try:
            async with self._clock.timeout(self._lease_s):
                unsettled = await settle_all(
                    self._port, settlements, chunk=chunk, clock=self._clock
                )
        except TimeoutError as error:
            self._warn(len(deliveries), error)
            return
        refused = {refusal.delivery for refusal in unsettled}
        for each in deliveries:
            if each not in refused:
                self._unsettled.pop(_key(each) or "", None)
        if unsettled:
            self._judge(unsettled)
        else:
            settled = min(self._unsettled.values(), default=self._spool.last + 1) - 1
            await asyncio.to_thread(self._spool.note_settled, settled)

    def _judge(self, unsettled: Sequence[Refusal]) -> None:
        """What was not acked comes again; an error that would stay is not waited for."""
        self._warn(len(unsettled), unsettled[0].error)
        for refusal in unsettled:
            if not refusal.is_final and not is_passing(refusal.error):
                raise refusal.error

    def _warn(self, count: int, error: BaseException) -> None:
        _log.warning(vocabulary.SETTLE_FAILED, queue=self._queue, count=count, error=repr(error))


class _Basket:
    """What several pollers have received together, and how much more they may ask for."""

    def __init__(self, received: list[Delivery], most: int, until_s: float) -> None:
        self.received = received
        self._until_s = until_s
        self.room = most - len(received)
        self._size = sum(len(each.message.body) for each in received)

    def take_room(self, most: int, now_s: float) -> int:
        """Room for at most so many, which the caller gives back or fills."""
        if self._size >= _MAX_SEGMENT_BYTES or now_s >= self._until_s:
            return 0
        taken = min(most, self.room)
        self.room -= taken
        return taken

    def put(self, deliveries: Sequence[Delivery], asked: int) -> None:
        """Add what came for the room that was taken."""
        self.received += deliveries
        self.room += asked - len(deliveries)
        self._size += sum(len(each.message.body) for each in deliveries)


def _key(delivery: Delivery) -> str | None:
    if delivery.broker_id is None:
        return None
    # A queue that was made anew may count from one again: another message is another message.
    return text(f"{delivery.broker_id} {delivery.message.id}")


def _entry(delivery: Delivery, queue: str) -> Entry:
    spotted = Spotted(message=delivery.message, queue=queue, attempt=delivery.attempt)
    return Entry(spotted=spotted, key=_key(delivery))
