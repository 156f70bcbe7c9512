"""Settling: what the broker is told of deliveries, and when that counts as done.

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
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pump.clock import Clock, Timer
from pump.errors import ConnectionFailed, GatewayError, InvalidReceipt, PumpError
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, Abandon, Ack, Action, Defer, Refusal, Settlement

from .connection import look_at
from .errors import Where, translated
from .leases import Lease, Leases
from .names import MAX_DELAY_S
from .topology import Topology
from .wire import Parcel, again, dead

if TYPE_CHECKING:
    from .amqp import Channel

_log = get_logger("gateways.rabbitmq")


class Settling:
    """Settles, extends and expires the leases of one queue."""

    def __init__(self, queue: str, topology: Topology, *, address: str, clock: Clock) -> None:
        self.leases = Leases()
        self._queue = queue
        self._topology = topology
        self._address = address
        self._clock = clock
        self._timer: Timer | None = None
        self._timer_at_s = float("inf")
        self._tasks: set[asyncio.Task[object]] = set()

    def hold(self, lease: Lease) -> None:
        """Enter what was received; from now on its end is watched."""
        self.leases.hold(lease)
        self._watch(lease.ends_at_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """See `ConsumerPort.settle`. Goes on in the background when cancelled."""
        now_s = self._clock.now_s()
        refusals: list[Refusal] = []
        taken: list[tuple[Lease, Action]] = []
        for settlement in settlements:
            lease = self.leases.take(settlement.delivery.receipt, now_s)
            if lease is None:
                refusals.append(self._refusal(settlement.delivery))
            else:
                taken.append((lease, settlement.action))
        if taken:
            refusals += await self._undisturbed(taken)
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], lease_s: float) -> Sequence[Refusal]:
        """See `ConsumerPort.extend`. Nobody is asked: the end is ours."""
        now_s = self._clock.now_s()
        refusals: list[Refusal] = []
        for delivery in deliveries:
            lease = self.leases.find(delivery.receipt, now_s)
            if lease is None or lease.ceiling_s <= now_s:
                refusals.append(self._refusal(delivery))
            else:
                self.leases.extend(lease, min(now_s + lease_s, lease.ceiling_s))
                self._watch(lease.ends_at_s)
        return refusals

    async def aclose(self) -> None:
        """Wait for what is under way; what is held goes back when its channel closes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at_s = None, float("inf")
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def under_way(self) -> None:
        """Return when all that is being settled now has come to its end."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def dead_letter(self, leases: Sequence[Lease]) -> None:
        """Move away what was delivered too often, or hand it back if that cannot be done."""
        for lease in leases:
            lease.is_taken = True
        await self._undisturbed([(lease, Defer()) for lease in leases])

    async def _undisturbed(self, taken: Sequence[tuple[Lease, Action]]) -> Sequence[Refusal]:
        # Cancelled in the middle of a question, the SDK would close the channel, and with it
        # every other lease.
        work = asyncio.create_task(self._settle_taken(taken), name="rabbitmq settle")
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)
        work.add_done_callback(look_at)
        return await asyncio.shield(work)

    async def _settle_taken(self, taken: Sequence[tuple[Lease, Action]]) -> Sequence[Refusal]:
        try:
            refusals, unmoved = await self._perform(taken)
        except BaseException:
            # Kept as taken, it would never end: neither settled nor handed back.
            for lease, _ in taken:
                self._give_back(lease)
            raise
        for lease, fault in unmoved:
            self._give_back(lease)
            refusals.append(Refusal(lease.delivery, fault))
        return refusals

    def _give_back(self, lease: Lease) -> None:
        self.leases.give_back(lease)
        self._watch(lease.ends_at_s)

    async def _perform(
        self, taken: Sequence[tuple[Lease, Action]]
    ) -> tuple[list[Refusal], list[tuple[Lease, GatewayError]]]:
        """The refusals, and those whose copy was not taken: they are still the caller's."""
        ready, unmoved = await self._send_copies(taken)
        return await self._tell_all(ready), unmoved

    async def _tell_all(self, told: Sequence[tuple[Lease, bool]]) -> list[Refusal]:
        by_channel: dict[Channel, list[tuple[Lease, bool]]] = {}
        for lease, is_done in told:
            by_channel.setdefault(lease.channel, []).append((lease, is_done))
        refusals: list[Refusal] = []
        for channel, part in by_channel.items():
            error = await self._tell(channel, part)
            for lease, _ in part:
                # Told or not: an error has closed the channel, and the broker owns it all again.
                self.leases.spend(lease)
                if error is not None:
                    refusals.append(Refusal(lease.delivery, error))
        return refusals

    async def _tell(
        self, channel: Channel, told: Sequence[tuple[Lease, bool]]
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
        self, taken: Sequence[tuple[Lease, Action]]
    ) -> tuple[list[tuple[Lease, bool]], list[tuple[Lease, GatewayError]]]:
        """What may be told now, and whether as done; and those whose copy was not taken."""
        ready: list[tuple[Lease, bool]] = []
        copies: dict[tuple[str, float], list[tuple[Lease, Action, Parcel]]] = {}
        for lease, action in taken:
            copy = self._copy(lease, action)
            if copy is None:
                ready.append((lease, isinstance(action, Ack)))
            else:
                target, delay_s, parcel = copy
                copies.setdefault((target, delay_s), []).append((lease, action, parcel))
        unmoved: list[tuple[Lease, GatewayError]] = []
        for (target, delay_s), triples in copies.items():
            fates = await self._sent([parcel for _, _, parcel in triples], target, delay_s)
            for (lease, action, _), fate in zip(triples, fates, strict=True):
                if fate is None:
                    ready.append((lease, True))
                elif isinstance(action, Abandon) and not lease.is_last:
                    # To be counted once too often is better than to be kept from others.
                    ready.append((lease, False))
                else:
                    unmoved.append((lease, fate))
        return ready, unmoved

    async def _sent(
        self, parcels: Sequence[Parcel], target: str, delay_s: float
    ) -> Sequence[GatewayError | None]:
        try:
            fates = await self._topology.publish(target, parcels, delay_s=delay_s)
        except PumpError as error:
            fates = [error] * len(parcels)
        return [
            fate
            if fate is None or isinstance(fate, GatewayError)
            else ConnectionFailed(self._address, str(fate))
            for fate in fates
        ]

    def _copy(self, lease: Lease, action: Action) -> tuple[str, float, Parcel] | None:
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

    def _watch(self, end_s: float) -> None:
        if end_s >= self._timer_at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = end_s
        delay_s = max(0.0, end_s - self._clock.now_s())
        self._timer = self._clock.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at_s = None, float("inf")
        due = self.leases.take_due(self._clock.now_s())
        if due:
            work = asyncio.create_task(self._hand_back(due), name="rabbitmq lease expiry")
            self._tasks.add(work)
            work.add_done_callback(self._tasks.discard)
        if (end_s := self.leases.next_end_s()) is not None:
            self._watch(end_s)

    async def _hand_back(self, due: Sequence[Lease]) -> None:
        gone = [lease for lease in due if lease.channel.is_closed]
        for lease in gone:
            self.leases.spend(lease)
        live = [lease for lease in due if lease not in gone]
        refusals, unmoved = await self._perform([(lease, Defer()) for lease in live])
        # A dead-letter queue that takes nothing must not keep the message from everybody.
        refusals += await self._tell_all([(lease, False) for lease, _ in unmoved])
        if refusals:
            # The channel has gone, and with it the lease.
            error = repr(refusals[0].error)
            _log.warning(vocabulary.SETTLE_FAILED, error=error, count=len(refusals))

    def _refusal(self, delivery: Delivery) -> Refusal:
        return Refusal(delivery, InvalidReceipt(self._queue, delivery.receipt))


async def hand_back(settling: Settling, deliveries: Sequence[Delivery]) -> None:
    """Make available again what nobody is going to handle; never raises for it."""
    if not deliveries:
        return
    refusals = await settling.settle([Settlement(each, ABANDON) for each in deliveries])
    if refusals:
        # Their leases run out, or have gone with their channel.
        error = repr(refusals[0].error)
        _log.warning(vocabulary.SETTLE_FAILED, error=error, count=len(refusals))
