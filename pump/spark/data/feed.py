"""Feed: the segments a query reads next, filled from the queue when there is none.

An offset names a spool and the last segment that was read. What an offset stands for never
changes: segments are numbered once, and written once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ...clock import Clock
from ...errors import ConfigurationError, GatewayError
from ...message import Delivery, Message
from ...observability import vocabulary
from ...observability.log import get_logger
from ...outcome import ACK, Refusal, Settlement
from ...ports import Gateway
from ...retrying import is_passing, pause, settle_all
from ...subscription import MakeChannels, Subscription
from .options import StreamOptions
from .rows import Spotted, text
from .spool import Segment, Spool, SpoolEntry

Offset = Mapping[str, Any]
_LOOK_S = 1.0
_LOCK_S = 15.0
"""How long the process of a query that was stopped may take to die: a poll may be under way."""
_LOCK_POLL_S = 0.1


class Feed:
    """What the driver's side of a stream does, for one query."""

    def __init__(
        self,
        gateway: Gateway,
        options: StreamOptions,
        *,
        clock: Clock,
        spool: Spool | None = None,
        lock_s: float = _LOCK_S,
    ) -> None:
        self._gateway = gateway
        self._options = options
        self._clock = clock
        self._lock_s = lock_s
        self._spool = Spool(options.spool, options.place.queue) if spool is None else spool
        self._intake: SpoolIntake | None = None
        self._drain: Drain | None = None
        self._committed = 0

    async def open(self) -> None:
        """Take the spool; `ConfigurationError` when another query has it. The broker is not asked
        yet.
        """
        await self._take_spool()
        self._intake = SpoolIntake(self._gateway, self._options, self._spool, self._clock)
        await self._intake.open()

    async def aclose(self) -> None:
        """Let go of the queue and the spool."""
        if self._intake is not None:
            await self._intake.aclose()
        await self._gateway.aclose()
        self._spool.close()

    def initial(self) -> Offset:
        """Where a query without a checkpoint starts: with the first segment that is still there."""
        segments = self._spool.segments
        return self._offset(segments[0].number - 1 if segments else 0)

    async def prepare_drain(self) -> None:
        """From now on, read what is there now, and no more."""
        intake = self._opened
        self._drain = Drain(await intake.depth(), self._gateway.capabilities.receive_batch)

    async def latest(self, start: Offset, limit: int | None) -> Offset:
        """The end of the next batch: at most `limit` messages, or one segment. None stands for
        all that is there. Equal to `start` when there is nothing.
        """
        at = self._checked(start)
        if limit is None:
            await self._drain_all()
        elif self._spool.last == at:
            await self._fill(limit)
        return self._offset(_end(self._spool, at, limit))

    async def commit(self, end: Offset) -> None:
        """Spark is done with everything up to `end`. The batch before it is removed: this one
        stays, for a query that is started again.
        """
        number = self._checked(end)
        oldest_s = self._clock.time_s() - self._options.retain.total_seconds()
        await asyncio.to_thread(self._spool.remove, self._committed, older_than_s=oldest_s)
        self._committed = number
        if self._intake is not None and self._spool.segments:
            self._intake.forget(self._spool.segments[0].number - 1)

    async def _take_spool(self) -> None:
        ends_at_s = self._clock.now_s() + self._lock_s
        while not await asyncio.to_thread(self._spool.open):
            if self._clock.now_s() >= ends_at_s:
                raise ConfigurationError(
                    "spool",
                    str(self._options.spool),
                    "another query writes to it; stop that one, or name another folder",
                )
            await self._clock.sleep(_LOCK_POLL_S)

    @property
    def _opened(self) -> SpoolIntake:
        assert self._intake is not None, "open the feed first"
        return self._intake

    async def _fill(self, limit: int) -> None:
        intake = self._opened
        if self._drain is not None:
            await self._drain_some(intake, self._drain, limit)
            return
        await intake.fill(
            limit,
            wait_s=self._options.wait.total_seconds(),
            linger_s=self._options.linger.total_seconds(),
        )

    async def _drain_all(self) -> None:
        intake = self._opened
        drain = Drain(await intake.depth(), self._gateway.capabilities.receive_batch)
        while not drain.is_done:
            await self._drain_some(intake, drain, 2**31)

    async def _drain_some(self, intake: SpoolIntake, drain: Drain, limit: int) -> None:
        """Until there is something to read, or the drain is done."""
        while not drain.is_done:
            if drain.is_round_over:
                drain.next_round(await intake.depth())
                continue
            filled = await intake.fill(drain.most(limit), wait_s=_LOOK_S, linger_s=None)
            drain.looked(filled.row_count, is_empty=filled.is_empty)
            if filled.row_count:
                return

    def _offset(self, number: int) -> Offset:
        return {"spool": self._spool.id, "segment": number}

    def _checked(self, offset: Offset) -> int:
        number = segment_of(offset)
        if offset["spool"] != self._spool.id or number > self._spool.last:
            raise ConfigurationError(
                "spool",
                str(self._options.spool),
                "the checkpoint belongs to another spool; name the folder it was written with, or "
                "a checkpoint of its own for this one",
            )
        return number


def segment_of(offset: Offset) -> int:
    """The number in an offset of ours."""
    return int(offset["segment"])


def _end(spool: Spool, start: int, limit: int | None) -> int:
    """The last segment of a batch: as many whole ones as the limit allows, but at least one."""
    ready: list[Segment] = [each for each in spool.segments if each.number > start]
    if not ready:
        return start
    if limit is None:
        return ready[-1].number
    end, count = ready[0].number, ready[0].row_count
    for segment in ready[1:]:
        count += segment.row_count
        if count > limit:
            break
        end = segment.number
    return end


# Intake: from the queue into the spool; a message is acked when its segment is on the disk.
#
# What is acked is in the spool. What is in the spool and was not acked, because this process or one
# before it died in between, comes again, is known by its broker's id, and is acked without a second
# copy. Where the broker has no such id, or the segment is gone by then, the copy stays.

_log = get_logger("pump.spark")
_MAX_SEGMENT_ROWS = 10_000
_MAX_SEGMENT_BYTES = 128 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Filled:
    """What one filling brought."""

    row_count: int
    is_empty: bool
    """It ended because no more messages came."""


class SpoolIntake:
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
                # The next round meets it again, and with nothing in flight.
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


def _entry(delivery: Delivery, queue: str) -> SpoolEntry:
    spotted = Spotted(message=delivery.message, queue=queue, attempt=delivery.attempt)
    return SpoolEntry(spotted=spotted, key=_key(delivery))


# Drain: when a query that is to read what is there, and no more, is done. Pure.
#
# A queue does not say which messages were there at a moment, and may only estimate how many. So as
# many are read as there were, then those that the estimate missed, as long as each round has at
# most half of the one before: senders as fast as the reader cannot keep the query alive.
#
# | it is done | when                                                              |
# |------------|-------------------------------------------------------------------|
# | empty      | two looks in a row, each a long poll, found nothing               |
# | enough     | a round is read, and more than half as much is there again        |

_EMPTY_LOOKS = 2


@attrs.define
class Drain:
    """How much is still to be read; a depth of None stands for as much as comes."""

    depth: int | None
    least: int
    """A round is not smaller than this: one receive may bring as much."""
    is_done: bool = False
    _left: int | None = attrs.field(init=False)
    _empty_count: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._left = None if self.depth is None else max(self.depth, self.least)

    def most(self, limit: int) -> int:
        """How many to ask for."""
        return limit if self._left is None else min(limit, self._left)

    @property
    def is_round_over(self) -> bool:
        """Whether the queue's depth must be known to go on."""
        return self._left is not None and self._left <= 0

    def looked(self, found_count: int, *, is_empty: bool) -> None:
        """Note what a look found, and whether it ended because nothing more came."""
        if self._left is not None:
            self._left -= found_count
        if found_count:
            self._empty_count = 0
        if is_empty:
            self._empty_count += 1
        self.is_done = self.is_done or self._empty_count >= _EMPTY_LOOKS

    def next_round(self, depth: int | None) -> None:
        """Note how much is there after a round."""
        if self.depth is None or depth is None or depth * 2 > self.depth:
            self.is_done = True
            return
        self.depth, self._left = depth, max(depth, self.least)
