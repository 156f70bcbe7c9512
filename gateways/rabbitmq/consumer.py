"""The consumer port of one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError
from pump.ids import new_id
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Refusal, Settlement

from .connection import Link, close_channel
from .errors import Where, fault_of, translated
from .leases import Lease, Terms
from .limits import RECEIVE_BATCH
from .settling import Settling, hand_back
from .tap import Tap, Taps
from .wire import attempt_of, decode, native_of

if TYPE_CHECKING:
    from .amqp import Channel, Received

_log = get_logger("gateways.rabbitmq")


class RabbitMQConsumer:
    """Receives from one queue through a channel of its own, and settles what it received."""

    def __init__(
        self, link: Link, queue: str, terms: Terms, settling: Settling, *, clock: Clock
    ) -> None:
        self._link = link
        self._queue = queue
        self._terms = terms
        self._settling = settling
        self._clock = clock
        self._where = Where(link.address, "receiving", queue)
        self._channel: Channel | None = None
        self._taps: Taps | None = None
        self._opening = asyncio.Lock()
        self._given_up: set[asyncio.Task[None]] = set()
        self._tell_lost: Callable[[Sequence[Delivery]], None] | None = None

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Subscribes for `max_count` messages, and unsubscribes as soon as there is one."""
        tap = Tap(self._clock)
        work = asyncio.create_task(
            self._receive(tap, min(max_count, RECEIVE_BATCH), wait_s), name="rabbitmq receive"
        )
        try:
            deliveries = await asyncio.shield(work)
        except asyncio.CancelledError:
            tap.give_up()
            self._finish(work)
            raise
        if self._channel is None or self._channel.is_closed:
            # Since the work ended: what is lost was told before the caller knew of it.
            return [each for each in deliveries if each.receipt in self._settling.leases]
        return deliveries

    def when_lost(self, tell: Callable[[Sequence[Delivery]], None]) -> None:
        """Leases end with their channel, and so with their connection."""
        self._tell_lost = tell

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Returns when the broker has taken it in; see `settling`."""
        return await self._settling.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """Moves an end that only we keep, at most to the broker's own `consumer_timeout`."""
        return await self._settling.extend(deliveries, lease_s)

    async def aclose(self) -> None:
        """What was not settled goes back to the queue at once."""
        while self._given_up:
            await asyncio.wait(list(self._given_up))
        # A settlement whose caller was cancelled: its copy may be sent, and its ack not.
        await self._settling.under_way()
        channel, self._channel = self._channel, None
        if channel is not None:
            await close_channel(channel)
            self._settling.leases.lose(channel)

    async def _receive(self, tap: Tap, count: int, wait_s: float) -> Sequence[Delivery]:
        ends_at_s = self._clock.now_s() + wait_s
        while True:
            left_s = ends_at_s - self._clock.now_s()
            with translated(self._where):
                channel, taps = await self._opened()
                if left_s > 0:
                    await taps.catch(tap, count, left_s)
                else:
                    await taps.get(tap, count)
                self._require(channel)
            caught, tap.caught = tap.caught, []
            deliveries = await self._held(taps, caught)
            if deliveries or not caught or tap.is_given_up:
                return deliveries

    def _require(self, channel: Channel) -> None:
        """What came through a channel that has closed since is the broker's again."""
        if not channel.is_closed:
            return
        closing = channel.closing
        error = None if closing.cancelled() else closing.exception()
        fault = None if error is None else fault_of(error, self._where)
        raise fault or ConnectionFailed(self._link.address, "the channel was closed")

    async def _held(
        self, taps: Taps, caught: Sequence[tuple[Received, float]]
    ) -> Sequence[Delivery]:
        """The deliveries of what was caught; those that come once too often are moved away."""
        leases = [self._lease(taps, received, at_s) for received, at_s in caught]
        limit = self._terms.max_receive_count
        for lease in leases:
            self._settling.hold(lease)
        if limit is None:
            return [lease.delivery for lease in leases]
        spent = [lease for lease in leases if lease.delivery.attempt > limit]
        if spent:
            await self._settling.dead_letter(spent)
        return [lease.delivery for lease in leases if lease.delivery.attempt <= limit]

    def _lease(self, taps: Taps, received: Received, at_s: float) -> Lease:
        from . import amqp

        parcel = amqp.parcel_of(received)
        terms = self._terms
        ends_at_s = at_s + min(terms.lease_s, terms.max_lease_s)
        delivery = Delivery(
            message=decode(parcel),
            queue=self._queue,
            receipt=new_id(),
            attempt=attempt_of(
                parcel, queue=self._queue, is_redelivered=bool(received.redelivered)
            ),
            lease_expires_at_s=ends_at_s,
            broker_id=parcel.stored_id,
            native=native_of(parcel),
        )
        return Lease(
            delivery,
            parcel,
            taps.channel,
            taps.outstanding,
            int(received.delivery_tag or 0),
            terms,
            at_s,
            ends_at_s,
        )

    async def _opened(self) -> tuple[Channel, Taps]:
        async with self._opening:
            if self._channel is None or self._taps is None or self._channel.is_closed:
                if self._channel is not None:
                    self._lose(self._channel)
                self._channel = channel = await self._link.channel()
                channel.closing.add_done_callback(lambda _: self._lose(channel))
                self._taps = Taps(channel, self._queue)
            return self._channel, self._taps

    def _lose(self, channel: Channel) -> None:
        lost = self._settling.leases.lose(channel)
        if lost and self._tell_lost is not None:
            self._tell_lost(lost)

    def _finish(self, work: asyncio.Task[Sequence[Delivery]]) -> None:
        finishing = asyncio.create_task(self._give_back(work), name="rabbitmq give back")
        self._given_up.add(finishing)
        finishing.add_done_callback(self._given_up.discard)

    async def _give_back(self, work: asyncio.Task[Sequence[Delivery]]) -> None:
        try:
            await hand_back(self._settling, await work)
        except GatewayError as error:
            # Nothing came, or the broker has taken it back with the channel.
            _log.debug(vocabulary.SETTLE_FAILED, error=repr(error))
