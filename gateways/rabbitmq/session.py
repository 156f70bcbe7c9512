"""One session: the queue of a group, received from by whoever has its lock.

Nobody else receives from that queue, so what is given back stays here and is returned again,
before its successors and in order; the broker learns of it when the session ends.

| the lock is | when                                              | and then            |
|-------------|---------------------------------------------------|---------------------|
| held        | accepted or renewed, and its end is ahead         | calls go through    |
| over        | its end has passed: the broker knows none, we do  | let go; calls raise |
| gone        | the channel or the connection died                | let go; calls raise |
| released    | the session was closed                            | calls raise         |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from pump.clock import Clock, Timer
from pump.errors import ConnectionFailed, GatewayError, InvalidReceipt, PumpError, SessionLockLost
from pump.ids import new_id
from pump.message import Delivery
from pump.outcome import Ack, Action, Defer, Refusal, Settlement

from .connection import look_at
from .consumer import Tap, Taps
from .errors import Where, translated
from .leases import Terms
from .names import RECEIVE_BATCH
from .session_index import SessionLock
from .topology import Topology, first_error
from .wire import Parcel, attempt_of, dead, decode, native_of

if TYPE_CHECKING:
    from .amqp import Received


_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class SessionPlace:
    """Which session of which queue, and under what terms."""

    queue: str
    id: str
    session_queue: str
    address: str
    terms: Terms


class RabbitMQSession:
    """The port of one session, from its lock to its release."""

    def __init__(
        self,
        place: SessionPlace,
        lock: SessionLock,
        topology: Topology,
        *,
        clock: Clock,
        let_go: Callable[[RabbitMQSession], asyncio.Task[None]],
    ) -> None:
        self.lock = lock
        self.hand = SessionHand()
        self.rests_until_s = 0.0
        """Until when nothing is returned: the head was deferred."""
        self._place = place
        self._topology = topology
        self._clock = clock
        self._let_go = let_go
        """Releases the lock, in a task that is not this session's."""
        self._taps = Taps(lock.channel, place.session_queue)
        self._tap: Tap | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_recovered = False
        """Whether what an owner before this one handed back was asked for: the broker gives it
        first, but in no order."""
        self._is_over = False
        self._ends_at_s = clock.now_s() + place.terms.lease_s
        self._timer: Timer | None = None
        self._watch()
        # With its channel goes the lock, or all that it was good for.
        lock.channel.closing.add_done_callback(lambda _: self._expire())

    @property
    def id(self) -> str:
        return self._place.id

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._ends_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """What was given back first; then as many as were asked for, at the most."""
        until_s = self._clock.now_s() + wait_s
        while True:
            self._require()
            left_s = max(until_s - self._clock.now_s(), 0.0)
            if not await self._has_rested(left_s):
                return []
            if not self.hand.has_ready:
                left_s = max(until_s - self._clock.now_s(), 0.0)
                await self._fetch(max_count, left_s)
            self._require()
            deliveries = self.hand.take(
                max_count, queue=self._place.queue, lease_expires_at_s=self._ends_at_s
            )
            if deliveries or left_s <= 0:
                return deliveries

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Acks are the broker's to take in; what comes again stays here."""
        self._require()
        refusals: list[Refusal] = []
        done: list[HeldMessage] = []
        last: list[tuple[Delivery, HeldMessage]] = []
        for settlement in settlements:
            delivery, action = settlement.delivery, settlement.action
            held = self.hand.find(delivery)
            if held is None:
                error = InvalidReceipt(self._place.queue, delivery.receipt)
                refusals.append(Refusal(delivery, error))
            elif isinstance(action, Ack):
                held.is_taken = True
                done.append(held)
            elif self._is_last(held, action):
                held.is_taken = True
                last.append((delivery, held))
            else:
                self._give_back(held, action)
        if done or last:
            refusals += await self._undisturbed(self._finish(done, last))
        return refusals

    async def renew(self) -> None:
        """The broker is asked for a sign of life; the end is ours to move."""
        self._require()
        renewed_at_s = self._clock.now_s()
        await self._undisturbed(self._tell([]))
        self._require()
        terms, oldest_s = self._place.terms, self.hand.oldest_s
        ceiling_s = (renewed_at_s if oldest_s is None else oldest_s) + terms.max_lease_s
        self._ends_at_s = max(self._ends_at_s, min(renewed_at_s + terms.lease_s, ceiling_s))
        self._watch()

    async def aclose(self) -> None:
        if not self._is_over:
            self._end()
            await asyncio.shield(self._let_go(self))

    async def finished(self) -> None:
        """Return when nothing is under way: from then on the channel is nobody's."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _has_rested(self, wait_s: float) -> bool:
        """Whether what was deferred is due, waited for as long as there is time."""
        rests_s = self.rests_until_s - self._clock.now_s()
        if rests_s <= 0:
            return True
        await self._clock.sleep(min(rests_s, wait_s))
        self._require()
        return rests_s <= wait_s

    async def _fetch(self, count: int, wait_s: float) -> None:
        """Keep what comes, also when nobody waits for it any more."""
        if self._fetching is not None and not self._fetching.done():
            # Of a receive that was cancelled: it is about to end.
            await asyncio.wait([self._fetching])
            if self.hand.has_ready:
                return
        self._tap = tap = Tap(self._clock)
        work = self._catch(tap, min(count, RECEIVE_BATCH), wait_s)
        self._fetching = self._started(work)
        try:
            await asyncio.shield(self._fetching)
        except asyncio.CancelledError:
            tap.give_up()
            raise

    async def _catch(self, tap: Tap, count: int, wait_s: float) -> None:
        queue = self._place.session_queue
        try:
            with translated(Where(self._place.address, "receiving", queue)):
                if not self._is_recovered:
                    await self._taps.get_returned(tap)
                    self._is_recovered = True
                if tap.caught:
                    pass
                elif wait_s > 0:
                    await self._taps.catch(tap, count, wait_s)
                else:
                    await self._taps.get(tap, count)
        except GatewayError as error:
            raise SessionLockLost(self._place.queue, self.id) from error
        held = [self._held(received, at_s) for received, at_s in tap.caught]
        for each in sorted(held, key=lambda each: each.parcel.order):
            self.hand.add(each)

    def _held(self, received: Received, at_s: float) -> HeldMessage:
        from . import amqp

        parcel = amqp.parcel_of(received)
        attempt = attempt_of(
            parcel, queue=self._place.queue, is_redelivered=bool(received.redelivered)
        )
        return HeldMessage(parcel, int(received.delivery_tag or 0), at_s, attempt)

    def _is_last(self, held: HeldMessage, action: Action) -> bool:
        """Whether this was the last delivery that the message gets."""
        terms = self._place.terms
        return (
            isinstance(action, Defer)
            and terms.dead_letter_queue is not None
            and terms.max_receive_count is not None
            and held.attempt >= terms.max_receive_count
        )

    def _give_back(self, held: HeldMessage, action: Action) -> None:
        self.hand.give_back(held, is_counted=isinstance(action, Defer))
        if isinstance(action, Defer):
            rests_until_s = self._clock.now_s() + action.delay_s
            self.rests_until_s = max(self.rests_until_s, rests_until_s)

    async def _finish(
        self, done: list[HeldMessage], last: Sequence[tuple[Delivery, HeldMessage]]
    ) -> list[Refusal]:
        """Ack what is done, and what was moved to the dead-letter queue."""
        refusals: list[Refusal] = []
        for delivery, held in last:
            if (fault := await self._move(held)) is None:
                done.append(held)
            else:
                held.is_taken = False
                refusals.append(Refusal(delivery, fault))
        if done:
            await self._ack(done)
        return refusals

    async def _move(self, held: HeldMessage) -> GatewayError | None:
        """Send a copy to the dead-letter queue; what kept it from being taken."""
        at_s, queue = self._clock.time_s(), self._place.queue
        copy = dead(held.parcel, queue=queue, attempts=held.attempt, at_s=at_s)
        target = self._place.terms.dead_letter_queue or ""
        try:
            fault = first_error(await self._topology.publish(target, [copy]))
        except PumpError as error:
            fault = error
        if fault is None or isinstance(fault, GatewayError):
            return fault
        return ConnectionFailed(self._place.address, str(fault))

    async def _ack(self, done: Sequence[HeldMessage]) -> None:
        await self._tell([each.tag for each in done])
        for each in done:
            self.hand.drop(each)

    async def _tell(self, tags: Sequence[int]) -> None:
        from . import amqp

        try:
            with translated(Where(self._place.address, "settling", self._place.session_queue)):
                await amqp.tell(self.lock.channel, self._taps.outstanding, done=tags)
        except GatewayError as error:
            raise SessionLockLost(self._place.queue, self.id) from error

    async def _undisturbed(self, work: Coroutine[Any, Any, _T]) -> _T:
        # Cancelled in the middle of a question, the SDK would close the channel.
        return await asyncio.shield(self._started(work))

    def _started(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work, name="rabbitmq session")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(look_at)
        return task

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left_s = max(self._ends_at_s - self._clock.now_s(), 0.0)
        self._timer = self._clock.call_later(left_s, self._expire)

    def _expire(self) -> None:
        if not self._is_over:
            self._end()
            self._let_go(self)

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._tap is not None:
            self._tap.give_up()

    def _require(self) -> None:
        if self.lock.is_gone or self._ends_at_s <= self._clock.now_s():
            self._expire()
        if self._is_over:
            raise SessionLockLost(self._place.queue, self.id)


# What a session has received and not settled, in the order of the queue. Pure.
#
# | a message is | when                                | and then                                  |
# |--------------|-------------------------------------|-------------------------------------------|
# | here         | it came, or was given back          | returned by the next receive              |
# | out          | it was returned                     | its receipt is valid                      |
# | done         | it was acked, or its copy was moved | forgotten; its receipt is valid no longer |


@attrs.define(eq=False)
class HeldMessage:
    """One of them."""

    parcel: Parcel
    tag: int
    """By which the channel knows it."""
    received_at_s: float
    attempt: int
    receipt: str = ""
    """Empty while it is here."""
    is_taken: bool = False
    """Whether a settlement of it is on its way."""


class SessionHand:
    """The messages of one session that are not settled."""

    def __init__(self) -> None:
        self._held: dict[int, HeldMessage] = {}
        self._out: dict[str, HeldMessage] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_ready(self) -> bool:
        """Whether there is something to return."""
        return len(self._out) < len(self._held)

    @property
    def oldest_s(self) -> float | None:
        """When the first of them came, None when there is none."""
        return min((each.received_at_s for each in self._held.values()), default=None)

    def add(self, message: HeldMessage) -> None:
        """The broker has delivered it, after all that are here."""
        self._held[message.tag] = message

    def take(self, max_count: int, *, queue: str, lease_expires_at_s: float) -> list[Delivery]:
        """The next ones to return."""
        here = [each for each in self._held.values() if not each.receipt][:max_count]
        return [self._returned(each, queue, lease_expires_at_s) for each in here]

    def find(self, delivery: Delivery) -> HeldMessage | None:
        """The message that was returned as this delivery, None when it is out no longer, or is
        being settled.
        """
        held = self._out.get(delivery.receipt)
        return None if held is None or held.is_taken else held

    def give_back(self, message: HeldMessage, *, is_counted: bool) -> None:
        """It is to be returned again, before those that came after it."""
        del self._out[message.receipt]
        message.receipt = ""
        message.attempt += is_counted

    def drop(self, message: HeldMessage) -> None:
        """It is done."""
        del self._held[message.tag]
        self._out.pop(message.receipt, None)

    def _returned(self, message: HeldMessage, queue: str, ends_at_s: float) -> Delivery:
        message.receipt = new_id()
        self._out[message.receipt] = message
        return Delivery(
            message=decode(message.parcel),
            queue=queue,
            receipt=message.receipt,
            attempt=message.attempt,
            lease_expires_at_s=ends_at_s,
            broker_id=message.parcel.stored_id,
            native=native_of(message.parcel),
        )
