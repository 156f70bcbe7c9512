"""The consumer port of one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError
from pump.message import Delivery, new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Refusal, Settlement
from pump.tasks import BackgroundTasks

from .connection import CLOSING_S, RabbitMQLink, close_channel
from .errors import Where, fault_of, translated
from .names import RECEIVE_BATCH
from .settling import Outstanding, RabbitMQLease, RabbitMQSettling, Terms, hand_back
from .wire import attempt_of, decode, native_of

if TYPE_CHECKING:
    from .amqp import Channel, Received


_log = get_logger("gateways.rabbitmq")


class RabbitMQConsumer:
    """Receives from one queue through a channel of its own, and settles what it received."""

    def __init__(
        self,
        link: RabbitMQLink,
        queue: str,
        terms: Terms,
        settling: RabbitMQSettling,
        *,
        clock: Clock,
    ) -> None:
        self._link = link
        self._queue = queue
        self._terms = terms
        self._settling = settling
        self._clock = clock
        self._where = Where(link.address, "receiving", queue)
        self._channel: Channel | None = None
        self._consumers: OneShotConsumers | None = None
        self._opening = asyncio.Lock()
        self._given_up = BackgroundTasks("rabbitmq")
        self._tell_lost: Callable[[Sequence[Delivery]], None] | None = None

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Subscribes for `max_count` messages, and unsubscribes as soon as there is one."""
        consumer = OneShotConsumer(self._clock)
        work = asyncio.create_task(
            self._receive(consumer, min(max_count, RECEIVE_BATCH), wait_s), name="rabbitmq receive"
        )
        try:
            deliveries = await asyncio.shield(work)
        except asyncio.CancelledError:
            consumer.give_up()
            self._given_up.start(self._give_back(work), "give back")
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
        try:
            async with self._clock.timeout(CLOSING_S):
                await self._given_up.finish()
        except TimeoutError:
            # A broker that does not answer: it goes back with the channel.
            pass
        # A settlement whose caller was cancelled: its copy may be sent, and its ack not.
        await self._settling.under_way()
        channel, self._channel = self._channel, None
        if channel is not None:
            await close_channel(channel)
            self._settling.leases.lose(channel)

    async def _receive(
        self, consumer: OneShotConsumer, count: int, wait_s: float
    ) -> Sequence[Delivery]:
        ends_at_s = self._clock.now_s() + wait_s
        while True:
            left_s = ends_at_s - self._clock.now_s()
            with translated(self._where):
                channel, consumers = await self._opened()
                if left_s > 0:
                    await consumers.catch(consumer, count, left_s)
                else:
                    await consumers.get(consumer, count)
                self._require(channel)
            caught, consumer.caught = consumer.caught, []
            deliveries = await self._held(consumers, caught)
            if deliveries or not caught or consumer.is_given_up:
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
        self, consumers: OneShotConsumers, caught: Sequence[tuple[Received, float]]
    ) -> Sequence[Delivery]:
        """The deliveries of what was caught; those that come once too often are moved away."""
        leases = [self._lease(consumers, received, at_s) for received, at_s in caught]
        limit = self._terms.max_receive_count
        for lease in leases:
            self._settling.leases.hold(lease.delivery.receipt, lease)
        if limit is None:
            return [lease.delivery for lease in leases]
        spent = [lease for lease in leases if lease.delivery.attempt > limit]
        if spent:
            await self._settling.dead_letter(spent)
        return [lease.delivery for lease in leases if lease.delivery.attempt <= limit]

    def _lease(self, consumers: OneShotConsumers, received: Received, at_s: float) -> RabbitMQLease:
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
        return RabbitMQLease(
            ends_at_s,
            delivery=delivery,
            parcel=parcel,
            channel=consumers.channel,
            outstanding=consumers.outstanding,
            tag=int(received.delivery_tag or 0),
            terms=terms,
            received_at_s=at_s,
        )

    async def _opened(self) -> tuple[Channel, OneShotConsumers]:
        async with self._opening:
            if self._channel is None or self._consumers is None or self._channel.is_closed:
                if self._channel is not None:
                    self._lose(self._channel)
                self._channel = channel = await self._link.channel()
                channel.closing.add_done_callback(lambda _: self._lose(channel))
                self._consumers = OneShotConsumers(channel, self._queue)
            return self._channel, self._consumers

    def _lose(self, channel: Channel) -> None:
        lost = self._settling.leases.lose(channel)
        if lost and self._tell_lost is not None:
            self._tell_lost(lost)

    async def _give_back(self, work: asyncio.Task[Sequence[Delivery]]) -> None:
        try:
            await hand_back(self._settling, await work)
        except GatewayError as error:
            # Nothing came, or the broker has taken it back with the channel.
            _log.debug(vocabulary.SETTLE_FAILED, error=repr(error))


# One-shot consumer: a subscription for exactly as many messages as one receive asked for.
#
# The broker hands out no more than its prefetch while nothing is settled, and nothing after
# it has confirmed its end. So what it has caught by then is all there is: nothing waits
# unread in a buffer, hidden from others.
#
# A quorum queue goes on handing out while it hears of the end of one with prefetch left, and takes
# that back one count older: an attempt that no handler saw, and after the last a lost message.
# So its prefetch is what is there, or one, and is used up before it ends. Only one that ends
# empty, or that others were quicker to fill theirs from, can still meet a message in that very
# moment.

LONG_S = 1.0


class OneShotConsumer:
    """What one receive catches."""

    def __init__(self, clock: Clock) -> None:
        self.room = 0
        """For how many it was opened."""
        self.caught: list[tuple[Received, float]] = []
        """With the time of each: leases begin there."""
        self.is_given_up = False
        self._clock = clock
        self._woken = asyncio.Event()

    def catch(self, received: Received) -> None:
        """The broker delivers one."""
        self.caught.append((received, self._clock.now_s()))
        self._woken.set()

    def wake(self) -> None:
        """Wait no longer."""
        self._woken.set()

    def give_up(self) -> None:
        """Its receive is cancelled: end early, and hand back what was caught."""
        self.is_given_up = True
        self._woken.set()

    async def wait(self, wait_s: float) -> None:
        """Return as soon as there is something to see, at the latest after `wait_s`."""
        try:
            async with self._clock.timeout(wait_s):
                await self._woken.wait()
        except TimeoutError:
            return


class OneShotConsumers:
    """The consumers of one channel. A prefetch is that of the next: nothing may come between."""

    def __init__(self, channel: Channel, queue: str) -> None:
        self.channel = channel
        self._queue = queue
        self._opening = asyncio.Lock()
        self._prefetch = 0
        self._open: dict[str, OneShotConsumer] = {}
        self._ending: list[str] = []
        self._closing = asyncio.Lock()
        self.outstanding = Outstanding()
        """What came through this channel and is not settled."""
        channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
        channel.closing.add_done_callback(self._on_closed)

    async def catch(self, consumer: OneShotConsumer, count: int, wait_s: float) -> None:
        """Let up to `count` messages come, until there is one or `wait_s` have passed."""
        tag = await self._open_for(consumer, count)
        try:
            if wait_s < LONG_S:
                # A busy broker must not use up a short wait before it has even begun to look.
                await self.channel.flow(True)
            await consumer.wait(wait_s)
        finally:
            await self.close(tag)

    async def get(self, consumer: OneShotConsumer, count: int) -> None:
        """Ask for them one by one: only to that RabbitMQ answers that there is nothing."""
        from . import amqp

        while len(consumer.caught) < count and not consumer.is_given_up:
            received = await self.channel.basic_get(self._queue)
            if amqp.is_empty(received):
                return
            self._caught(consumer, received)

    async def get_returned(self, consumer: OneShotConsumer) -> None:
        """Ask for all that was handed out before and came back; the last may be a new one."""
        while not consumer.caught or consumer.caught[-1][0].redelivered:
            before = len(consumer.caught)
            await self.get(consumer, before + 1)
            if len(consumer.caught) == before:
                return

    async def _open_for(self, consumer: OneShotConsumer, count: int) -> str:
        """Let come what is ready, up to `count`, and one where nothing is."""
        from . import amqp

        async with self._opening:
            consumer.room = min(count, max(await self._unpromised(), 1))
            if self._prefetch != consumer.room:
                await self.channel.basic_qos(prefetch_count=consumer.room)
                self._prefetch = consumer.room

            async def on_received(received: Received) -> None:
                self._caught(consumer, received)

            tag = new_id()
            self._open[tag] = consumer
            await amqp.subscribe(self.channel, self._queue, tag, on_received)
        if self.channel.is_closed:
            consumer.wake()
        return tag

    async def _unpromised(self) -> int:
        """How many are ready, less those that open consumers still have prefetch for."""
        found = await self.channel.queue_declare(self._queue, passive=True)
        promised = sum(consumer.room - len(consumer.caught) for consumer in self._open.values())
        return (found.message_count or 0) - promised

    async def close(self, tag: str) -> None:
        """Return when no more can come. All that end meanwhile are told in one write."""
        self._open.pop(tag, None)
        self._ending.append(tag)
        async with self._closing:
            if tag in self._ending and not self.channel.is_closed:
                from . import amqp

                ending, self._ending = self._ending, []
                await amqp.unsubscribe(self.channel, ending)

    def _caught(self, consumer: OneShotConsumer, received: Received) -> None:
        self.outstanding.add(int(received.delivery_tag or 0))
        consumer.catch(received)

    def _on_cancelled(self, frame: object) -> None:
        """The broker has ended it: its queue is gone, or has moved."""
        consumer = self._open.get(str(getattr(frame, "consumer_tag", "")))
        if consumer is not None:
            consumer.wake()

    def _on_closed(self, _: object) -> None:
        for consumer in self._open.values():
            consumer.wake()
