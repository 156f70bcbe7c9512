"""Settling: what the broker is told of deliveries in flight, and when that counts as done.

An ack has no answer in AMQP. So a batch of them is followed by a question on the same channel:
its answer says that the broker has taken the acks. From then on only a broker that crashes within
the next moments can deliver the message again; the loss of our connection cannot.

| the action          | what is told                                                        |
|---------------------|---------------------------------------------------------------------|
| ack                 | ack                                                                 |
| defer by 0          | nack, requeued: first in line, counted by the broker                |
| defer               | a copy to a delay queue, confirmed, with its attempts; then ack     |
| … at the last       | a copy to the dead-letter queue, confirmed; then ack                |
| abandon             | a copy to the end of the queue, confirmed, one attempt less; then   |
|                     | ack. Where the copy is not taken, a nack, unless it was the last    |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import attrs

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError, PumpError
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, Abandon, Ack, Action, Defer, Refusal, Settlement
from pump.tasks import BackgroundTasks

from .._kit.leases import Lease, LeaseSettler, WatchedLeases
from .errors import Where, translated
from .names import MAX_DELAY_S
from .topology import Topology
from .wire import Parcel, again, dead

if TYPE_CHECKING:
    from .amqp import Channel


# Leases: what is in flight of one queue, and until when. Pure.
#
# RabbitMQ knows no end of a delivery but that of its channel, so the end is kept here.
#
# A lease whose end has passed is due: its message is handed back. All leases of a channel that
# closes are lost with it.


@attrs.frozen(kw_only=True)
class Terms:
    """What a subscription says about the leases of its queue."""

    lease_s: float
    max_lease_s: float
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None


class RabbitMQLease(Lease, eq=False, kw_only=True):
    """One delivery in flight."""

    delivery: Delivery
    parcel: Parcel
    channel: Channel
    outstanding: Outstanding
    """What is not settled on that channel."""
    tag: int
    terms: Terms
    received_at_s: float

    def is_over(self, now_s: float) -> bool:
        """With its channel it ends early."""
        return self.ends_at_s <= now_s or self.channel.is_closed

    @property
    def ceiling_s(self) -> float:
        """When no extension helps any more."""
        return self.received_at_s + self.terms.max_lease_s

    @property
    def is_last(self) -> bool:
        """Whether this delivery is the last that the message gets."""
        limit = self.terms.max_receive_count
        return limit is not None and self.delivery.attempt >= limit


class ChannelLeases(WatchedLeases[RabbitMQLease]):
    """The leases of one queue in this gateway."""

    def lose(self, channel: Channel) -> list[Delivery]:
        """A channel has closed, and the broker owns what was received through it: forget that, and
        return what no settlement was on its way for.
        """
        lost = [lease for lease in self if lease.channel is channel]
        for lease in lost:
            self.spend(lease.delivery.receipt)
        return [lease.delivery for lease in lost if not lease.is_taken]


# Which deliveries of one channel are not settled, so that many are acked in one word. Pure, but
# for the lock.
#
# AMQP can say "up to and with this one". That acks whatever is not settled below it, so a delivery
# must be known here from the moment it arrives. Tags are counted by the broker without gaps: one
# that was skipped is a delivery that was not reported here, and is never acked along with others.


@attrs.frozen
class Acks:
    """What to tell of deliveries that are done."""

    up_to: int | None
    """All that are not settled, up to and with this one."""
    singly: tuple[int, ...]


class Outstanding:
    """The delivery tags of one channel, from their arrival to their settlement."""

    def __init__(self) -> None:
        self._tags: dict[int, None] = {}
        """In the order of their numbers."""
        self._last = 0
        self.telling = asyncio.Lock()
        """Held until what was decided here is on its way: said too early, "up to this one" would
        ack what was decided otherwise before."""

    def __len__(self) -> int:
        return len(self._tags)

    def add(self, tag: int) -> None:
        """One has arrived."""
        self._tags.update(dict.fromkeys(range(self._last + 1, tag + 1)))
        self._last = max(self._last, tag)

    def settle(self, done: Iterable[int], undone: Iterable[int]) -> Acks:
        """How to ack those that are done. The undone are to be told before that."""
        for tag in undone:
            self._tags.pop(tag, None)
        left = dict.fromkeys(done)
        up_to = None
        for tag in list(islice(self._tags, len(left))):
            if tag not in left:
                break
            up_to = tag
            del left[tag], self._tags[tag]
        for tag in left:
            self._tags.pop(tag, None)
        return Acks(up_to, tuple(left))


_log = get_logger("gateways.rabbitmq")


class RabbitMQSettling:
    """Settles, extends and expires the leases of one queue."""

    def __init__(self, queue: str, topology: Topology, *, address: str, clock: Clock) -> None:
        self.leases = ChannelLeases(clock, self._expire)
        self._queue = queue
        self._topology = topology
        self._address = address
        self._clock = clock
        self._tasks = BackgroundTasks("rabbitmq")
        # Cancelled in the middle of a question, the SDK would close the channel, and with it
        # every other lease.
        self._settler = LeaseSettler(
            queue,
            self.leases,
            self._perform,
            clock=clock,
            start=lambda work: self._tasks.start(work, "settle"),
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """See `ConsumerPort.settle`. Goes on in the background when cancelled."""
        return await self._settler.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], lease_s: float) -> Sequence[Refusal]:
        """See `ConsumerPort.extend`. Makes no request: the end is ours."""
        now_s = self._clock.now_s()
        refusals: list[Refusal] = []
        for delivery in deliveries:
            lease = self.leases.find(delivery.receipt, now_s)
            if lease is None or lease.ceiling_s <= now_s:
                refusals.append(self._settler.refusal(delivery))
            else:
                lease.ends_at_s = min(now_s + lease_s, lease.ceiling_s)
                self.leases.watch(delivery.receipt)
        return refusals

    async def aclose(self) -> None:
        """Wait for what is under way; what is in flight goes back when its channel closes."""
        self.leases.unwatch()
        await self._tasks.finish()

    async def under_way(self) -> None:
        """Return when all that is being settled now has come to its end."""
        await self._tasks.finish_current()

    async def dead_letter(self, leases: Sequence[RabbitMQLease]) -> None:
        """Move away what was delivered too often; what cannot be moved is handed back when its
        lease ends.
        """
        await self.settle([Settlement(lease.delivery, Defer()) for lease in leases])

    async def _perform(
        self, settlements: Sequence[Settlement], leases: Sequence[RabbitMQLease]
    ) -> dict[str, GatewayError]:
        """What is not told because its copy was not taken is still the caller's."""
        ready, failures = await self._send_copies(settlements, leases)
        return {**failures, **await self._tell_all(ready)}

    async def _tell_all(
        self, told: Sequence[tuple[RabbitMQLease, bool]]
    ) -> dict[str, GatewayError]:
        by_channel: dict[Channel, list[tuple[RabbitMQLease, bool]]] = {}
        for lease, is_done in told:
            by_channel.setdefault(lease.channel, []).append((lease, is_done))
        failures: dict[str, GatewayError] = {}
        for channel, part in by_channel.items():
            if (error := await self._tell(channel, part)) is None:
                continue
            for lease, _ in part:
                # Told or not: an error has closed the channel, and the broker owns it all again.
                self.leases.spend(lease.delivery.receipt)
                failures[lease.delivery.receipt] = error
        return failures

    async def _tell(
        self, channel: Channel, told: Sequence[tuple[RabbitMQLease, bool]]
    ) -> GatewayError | None:
        from . import amqp

        try:
            with translated(Where(self._address, "settling", self._queue)):
                await amqp.tell(
                    channel,
                    told[0][0].outstanding,
                    done=[lease.tag for lease, is_done in told if is_done],
                    undone=[lease.tag for lease, is_done in told if not is_done],
                )
        except GatewayError as error:
            return ConnectionFailed(self._address, str(error))
        return None

    async def _send_copies(
        self, settlements: Sequence[Settlement], leases: Sequence[RabbitMQLease]
    ) -> tuple[list[tuple[RabbitMQLease, bool]], dict[str, GatewayError]]:
        """What may be told now, and whether as done; and those whose copy was not taken."""
        ready: list[tuple[RabbitMQLease, bool]] = []
        copies: dict[tuple[str, float], list[tuple[RabbitMQLease, Action, Parcel]]] = {}
        for settlement, lease in zip(settlements, leases, strict=True):
            action = settlement.action
            copy = self._copy(lease, action)
            if copy is None:
                ready.append((lease, isinstance(action, Ack)))
            else:
                target, delay_s, parcel = copy
                copies.setdefault((target, delay_s), []).append((lease, action, parcel))
        unmoved: dict[str, GatewayError] = {}
        for (target, delay_s), triples in copies.items():
            results = await self._sent([parcel for _, _, parcel in triples], target, delay_s)
            for (lease, action, _), result in zip(triples, results, strict=True):
                if result is None:
                    ready.append((lease, True))
                elif isinstance(action, Abandon) and not lease.is_last:
                    # To be counted once too often is better than to be kept from others.
                    ready.append((lease, False))
                else:
                    unmoved[lease.delivery.receipt] = result
        return ready, unmoved

    async def _sent(
        self, parcels: Sequence[Parcel], target: str, delay_s: float
    ) -> Sequence[GatewayError | None]:
        try:
            results = await self._topology.publish(target, parcels, delay_s=delay_s)
        except PumpError as error:
            results = [error] * len(parcels)
        return [
            result
            if result is None or isinstance(result, GatewayError)
            else ConnectionFailed(self._address, str(result))
            for result in results
        ]

    def _copy(self, lease: RabbitMQLease, action: Action) -> tuple[str, float, Parcel] | None:
        """The copy that must be sent before the original goes: where, how late, and what."""
        attempt, queue = lease.delivery.attempt, self._queue
        match action:
            case Ack():
                return None
            case Defer(delay_s=delay_s):
                if lease.is_last and lease.terms.dead_letter_queue is not None:
                    parcel = dead(
                        lease.parcel, queue=queue, attempts=attempt, at_s=self._clock.time_s()
                    )
                    return lease.terms.dead_letter_queue, 0.0, parcel
                if delay_s <= 0:
                    return None
                delay_s = min(delay_s, MAX_DELAY_S)
                return queue, delay_s, again(lease.parcel, queue=queue, attempts=attempt)
            case Abandon():
                return queue, 0.0, again(lease.parcel, queue=queue, attempts=attempt - 1)

    def _expire(self, due: Sequence[RabbitMQLease]) -> None:
        for lease in due:
            lease.is_taken = True
        self._tasks.start(self._hand_back(due), "lease expiry")

    async def _hand_back(self, due: Sequence[RabbitMQLease]) -> None:
        live = [lease for lease in due if not lease.channel.is_closed]
        failures = await self._perform([Settlement(each.delivery, Defer()) for each in live], live)
        lost = {receipt: error for receipt, error in failures.items() if receipt not in self.leases}
        # A dead-letter queue that takes nothing must not keep the message from all consumers.
        unmoved = [each for each in live if each.delivery.receipt in failures.keys() - lost.keys()]
        lost |= await self._tell_all([(each, False) for each in unmoved])
        for lease in due:
            self.leases.spend(lease.delivery.receipt)
        if lost:
            # The channel has gone, and with it the lease.
            error = repr(next(iter(lost.values())))
            _log.warning(vocabulary.SETTLE_FAILED, error=error, count=len(lost))


async def hand_back(settling: RabbitMQSettling, deliveries: Sequence[Delivery]) -> None:
    """Make available again what will not be handled; never raises for it."""
    if not deliveries:
        return
    refusals = await settling.settle([Settlement(each, ABANDON) for each in deliveries])
    if refusals:
        # Their leases run out, or have gone with their channel.
        error = repr(refusals[0].error)
        _log.warning(vocabulary.SETTLE_FAILED, error=error, count=len(refusals))
