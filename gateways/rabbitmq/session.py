"""Sessions: the queue of a group, received from by the holder of its lock.

No other client receives from that queue, so what is given back stays here and is returned again,
before its successors and in order; the broker learns of it when the session ends. It then counts
all of that as delivered once more, tried or not: so the holder leaves a note of how far that is
wrong, and the next one reads it when a message comes again.

The broker knows no end of the lock: it is kept here, as that of leases is. With its channel the
lock is gone, and with it everything that was received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError, PumpError, SessionLockLost
from pump.message import Delivery, new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, ACK, Action, Defer, Refusal, Settlement
from pump.tasks import BackgroundTasks

from .._kit.leases import Alarm, Lease
from .._kit.session import HeldMessage, SessionHand, SessionState
from .connection import CLOSING_S, RabbitMQLink, close_channel
from .consumer import OneShotConsumer, OneShotConsumers, RabbitMQConsumer
from .errors import Where, translated
from .names import RECEIVE_BATCH, session_lock, session_queue
from .session_index import ConsumerSessionLock, ConsumerSessionLocks, SessionIndex, group_noted
from .settling import Terms
from .sorter import Sorter
from .topology import Topology, first_error
from .wire import Parcel, attempt_of, dead, decode, native_of

if TYPE_CHECKING:
    from .amqp import Received


_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class RabbitMQSessionContext:
    """Which session of which queue, and under what terms."""

    queue: str
    id: str
    session_queue: str
    address: str
    terms: Terms


class _LockLease(Lease, eq=False, kw_only=True):
    lock: ConsumerSessionLock

    def is_over(self, now_s: float) -> bool:
        return self.ends_at_s <= now_s or self.lock.is_gone


class _Message(HeldMessage, eq=False, kw_only=True):
    parcel: Parcel
    tag: int
    """By which the channel knows it."""
    received_at_s: float
    counted: int
    """The attempt that the broker takes this delivery for."""
    attempt: int


class RabbitMQSession:
    """The port of one session, from its lock to its release."""

    def __init__(
        self,
        context: RabbitMQSessionContext,
        lock: ConsumerSessionLock,
        topology: Topology,
        index: SessionIndex,
        *,
        clock: Clock,
        let_go: Callable[[RabbitMQSession], asyncio.Task[None]],
    ) -> None:
        self.lock = lock
        self.hand: SessionHand[_Message] = SessionHand()
        self.state = SessionState(
            context.queue,
            context.id,
            _LockLease(clock.now_s() + context.terms.lease_s, lock=lock),
            clock=clock,
            on_lost=self._lost,
        )
        self._context = context
        self._topology = topology
        self._index = index
        self._clock = clock
        self._let_go = let_go
        """Releases the lock, in a task that is not this session's."""
        self._consumers = OneShotConsumers(lock.channel, context.session_queue)
        self._consumer: OneShotConsumer | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks("rabbitmq")
        self._places = count()
        self._is_recovered = False
        """Whether what an owner before this one handed back was asked for: the broker gives it
        first, but in no order."""
        self._uncounted: dict[int, int] | None = None
        """What that owner noted, once it is known."""
        self._is_closed = False
        self._alarm = Alarm(clock, self.state.lose)
        self._alarm.ring_at(self.state.lease.ends_at_s)
        lock.channel.closing.add_done_callback(lambda _: self.state.lose())

    @property
    def id(self) -> str:
        return self._context.id

    @property
    def lock_expires_at_s(self) -> float | None:
        return self.state.lease.ends_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """What was given back first; then as many as were asked for, at the most."""
        until_s = self._clock.now_s() + wait_s
        while True:
            self.state.require()
            if not await self.state.has_rested(until_s):
                return []
            left_s = max(until_s - self._clock.now_s(), 0.0)
            if not self.hand.has_ready:
                await self._fetch(max_count, left_s)
            self.state.require()
            deliveries = [self._returned(each) for each in self.hand.ready()[:max_count]]
            if deliveries or left_s <= 0:
                return deliveries

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Acks are the broker's to take in; what comes again stays here."""
        self.state.require()
        found = self.hand.sort(settlements, queue=self._context.queue, is_last=self._is_last)
        for each, message in found.again:
            if isinstance(each.action, Defer):
                message.attempt += 1
                self.state.rest(each.action.delay_s)
        refusals = found.refusals
        if found.done or found.last:
            done = [message for _, message in found.done]
            refusals += await self._undisturbed(self._finish(done, found.last))
        return refusals

    async def renew(self) -> None:
        """The broker is asked for a sign of life; the end is ours to move."""
        self.state.require()
        renewed_at_s = self._clock.now_s()
        await self._undisturbed(self._tell([]))
        self.state.require()
        terms, lease = self._context.terms, self.state.lease
        oldest_s = min((each.received_at_s for each in self.hand), default=renewed_at_s)
        ends_at_s = min(renewed_at_s + terms.lease_s, oldest_s + terms.max_lease_s)
        lease.ends_at_s = max(lease.ends_at_s, ends_at_s)
        self._alarm.ring_at(lease.ends_at_s)

    async def aclose(self) -> None:
        if not self.state.is_lost:
            self.state.is_lost = self._is_closed = True
            self._end()
            await asyncio.shield(self._let_go(self))

    async def finished(self) -> None:
        """Return when nothing is under way: from then on the channel is unused."""
        await self._tasks.finish()

    def uncounted(self) -> dict[int, int]:
        """How many of their deliveries count as no attempt, of the messages that the broker takes
        back now, by their order. What was returned and not settled when the lock was lost may have
        been tried.
        """
        found: dict[int, int] = {}
        noted = self._uncounted or {}
        for each in self.hand:
            order = each.parcel.order
            was_tried = bool(each.receipt) and not self._is_closed
            surplus = each.counted + 1 - each.attempt - was_tried
            # What was noted before is said again, also where it is not so any more.
            if order and (surplus or order in noted):
                found[order] = surplus
        return found

    async def _fetch(self, count: int, wait_s: float) -> None:
        """Keep what comes, also when no receive waits for it any more."""
        if self._fetching is not None and not self._fetching.done():
            # Of a receive that was cancelled: it is about to end.
            await asyncio.wait([self._fetching])
            if self.hand.has_ready:
                return
        self._consumer = consumer = OneShotConsumer(self._clock)
        work = self._catch(consumer, min(count, RECEIVE_BATCH), wait_s)
        self._fetching = self._tasks.start(work, "session receive")
        try:
            await asyncio.shield(self._fetching)
        except asyncio.CancelledError:
            consumer.give_up()
            raise

    async def _catch(self, consumer: OneShotConsumer, count: int, wait_s: float) -> None:
        queue = self._context.session_queue
        try:
            with translated(Where(self._context.address, "receiving", queue)):
                if not self._is_recovered:
                    # To the end, though its receive be given up: the rest would come out of order.
                    returned = OneShotConsumer(self._clock)
                    await self._consumers.get_returned(returned)
                    consumer.caught += returned.caught
                    self._is_recovered = True
                if consumer.caught:
                    pass
                elif wait_s > 0:
                    await self._consumers.catch(consumer, count, wait_s)
                else:
                    await self._consumers.get(consumer, count)
        except GatewayError as error:
            raise SessionLockLost(self._context.queue, self.id) from error
        messages = [self._message(received, at_s) for received, at_s in consumer.caught]
        await self._correct(messages)
        for each in sorted(messages, key=lambda each: each.parcel.order):
            each.place = next(self._places)
            if self._is_spent(each):
                await self._move_spent(each)
            else:
                self.hand.add(each)

    def _message(self, received: Received, at_s: float) -> _Message:
        from . import amqp

        parcel = amqp.parcel_of(received)
        counted = attempt_of(
            parcel, queue=self._context.queue, is_redelivered=bool(received.redelivered)
        )
        return _Message(
            place=0,
            parcel=parcel,
            tag=int(received.delivery_tag or 0),
            received_at_s=at_s,
            counted=counted,
            attempt=counted,
        )

    async def _correct(self, messages: Sequence[_Message]) -> None:
        """Take off their counts what owners before this one handed back untried."""
        again = [each for each in messages if each.parcel.delivery_count]
        if not again:
            return
        if self._uncounted is None:
            try:
                self._uncounted = await self._index.uncounted(self.id)
            except GatewayError as error:
                # An attempt too many is better than a session that nothing comes out of.
                _log.warning(vocabulary.RECEIVE_FAILED, session=self.id, error=repr(error))
                self._uncounted = {}
        for each in again:
            each.attempt = max(1, each.counted - self._uncounted.get(each.parcel.order, 0))

    def _returned(self, message: _Message) -> Delivery:
        self.hand.give_out(message, new_id())
        return Delivery(
            message=decode(message.parcel),
            queue=self._context.queue,
            receipt=message.receipt,
            attempt=message.attempt,
            lease_expires_at_s=self.state.lease.ends_at_s,
            broker_id=message.parcel.stored_id,
            native=native_of(message.parcel),
        )

    def _is_last(self, message: _Message) -> bool:
        """Whether this is the last delivery that the message gets."""
        limit = self._limit
        return limit is not None and message.attempt >= limit

    def _is_spent(self, message: _Message) -> bool:
        """Whether it had its last delivery: its owner died over it, or lost the lock."""
        limit = self._limit
        return limit is not None and message.attempt > limit

    @property
    def _limit(self) -> int | None:
        terms = self._context.terms
        return terms.max_receive_count if terms.dead_letter_queue is not None else None

    async def _move_spent(self, message: _Message) -> None:
        """To the dead-letter queue; what cannot be moved comes again in the next session."""
        if (fault := await self._move(message)) is not None:
            _log.warning(vocabulary.SETTLE_FAILED, session=self.id, error=repr(fault))
        else:
            await self._tell([message.tag])

    async def _finish(
        self, done: list[_Message], last: Sequence[tuple[Settlement, _Message]]
    ) -> list[Refusal]:
        """Ack what is done, and what was moved to the dead-letter queue."""
        refusals: list[Refusal] = []
        for each, message in last:
            if (fault := await self._move(message)) is None:
                done.append(message)
            else:
                message.is_taken = False
                refusals.append(Refusal(each.delivery, fault))
        if done:
            await self._ack(done)
        return refusals

    async def _move(self, message: _Message) -> GatewayError | None:
        """Send a copy to the dead-letter queue; what kept it from being stored."""
        at_s, queue = self._clock.time_s(), self._context.queue
        copy = dead(message.parcel, queue=queue, attempts=message.attempt, at_s=at_s)
        target = self._context.terms.dead_letter_queue or ""
        try:
            fault = first_error(await self._topology.publish(target, [copy]))
        except PumpError as error:
            fault = error
        if fault is None or isinstance(fault, GatewayError):
            return fault
        return ConnectionFailed(self._context.address, str(fault))

    async def _ack(self, done: Sequence[_Message]) -> None:
        await self._tell([each.tag for each in done])
        for each in done:
            self.hand.drop(each)

    async def _tell(self, tags: Sequence[int]) -> None:
        from . import amqp

        try:
            with translated(Where(self._context.address, "settling", self._context.session_queue)):
                await amqp.tell(self.lock.channel, self._consumers.outstanding, done=tags)
        except GatewayError as error:
            raise SessionLockLost(self._context.queue, self.id) from error

    async def _undisturbed(self, work: Coroutine[Any, Any, _T]) -> _T:
        # Cancelled in the middle of a question, the SDK would close the channel.
        return await asyncio.shield(self._tasks.start(work, "session"))

    def _lost(self) -> None:
        self._end()
        self._let_go(self)

    def _end(self) -> None:
        self._alarm.cancel()
        if self._consumer is not None:
            self._consumer.give_up()


# Sessions: accepting the lock on a group, the one asked for or the next that has messages.

LOOK_S = 0.05
"""How often a lock that another has is asked for."""
GRACE_S = 0.25
"""For how long at least: the sorter, too, has each lock for a moment when it looks around."""
HAND_BACK_S = 0.5

_log = get_logger("gateways.rabbitmq")


class RabbitMQSessions:
    """Accepts the sessions of one queue."""

    def __init__(
        self,
        link: RabbitMQLink,
        topology: Topology,
        index: SessionIndex,
        sorter: Sorter,
        notes: RabbitMQConsumer,
        *,
        clock: Clock,
    ) -> None:
        self._link = link
        self._topology = topology
        self._index = index
        self._sorter = sorter
        self._notes = notes
        """Receives from the queue of notes."""
        self._clock = clock
        self._locks = ConsumerSessionLocks(link)
        self._open: set[RabbitMQSession] = set()
        self._chores = BackgroundTasks("rabbitmq")
        self._released = asyncio.Event()
        self._rests_until_s: dict[str, float] = {}
        """Of sessions that were closed here while their head was deferred."""
        self._is_prepared = False

    async def accept(
        self, session: str | None, terms: Terms, *, wait_s: float
    ) -> RabbitMQSession | None:
        """See `SessionGateway.accept_session`."""
        if not self._is_prepared:
            await self._index.prepare()
            self._is_prepared = True
        self._sorter.start()
        await self._sorter.caught_up()
        if session is None:
            return await self._next(terms, wait_s)
        return await self._named(session, terms, max(wait_s, GRACE_S))

    async def aclose(self) -> None:
        """Close every session, and the sorter. What a broker that does not answer keeps from being
        released goes with the connection.
        """
        try:
            async with self._clock.timeout(CLOSING_S):
                closing = [each.aclose() for each in list(self._open)]
                await asyncio.gather(*closing, return_exceptions=True)
                await self._chores.finish()
        except TimeoutError:
            pass
        await self._sorter.aclose()

    async def _named(self, group: str, terms: Terms, wait_s: float) -> RabbitMQSession | None:
        until_s = self._clock.now_s() + wait_s
        while True:
            self._released.clear()
            accepted = await self._chores.opened(
                self._lock(group, terms, is_choosy=False), RabbitMQSession.aclose
            )
            left_s = until_s - self._clock.now_s()
            if accepted is not None or left_s <= 0:
                return accepted
            try:
                async with self._clock.timeout(min(left_s, LOOK_S)):
                    await self._released.wait()
            except TimeoutError:
                continue

    async def _next(self, terms: Terms, wait_s: float) -> RabbitMQSession | None:
        until_s = self._clock.now_s() + wait_s
        while True:
            left_s = max(until_s - self._clock.now_s(), 0.0)
            received = await self._notes.receive(max_count=1, wait_s=left_s)
            if not received:
                return None
            [note] = received
            try:
                accepted = await self._chores.opened(
                    self._follow(note, terms), RabbitMQSession.aclose
                )
            except BaseException:
                self._chores.start(self._settle(note, ABANDON), "note")
                raise
            # Without waiting: a cancelled call would leave a lock without an owner.
            self._chores.start(self._settle(note, ACK), "note")
            if accepted is not None:
                return accepted

    async def _follow(self, note: Delivery, terms: Terms) -> RabbitMQSession | None:
        group = group_noted(note.message.body)
        if group is None:
            return None
        rests_s = self._rests_until_s.get(group, 0.0) - self._clock.now_s()
        if rests_s > 0:
            await self._index.announce([group], delay_s=rests_s)
            return None
        return await self._lock(group, terms, is_choosy=True)

    async def _lock(self, group: str, terms: Terms, *, is_choosy: bool) -> RabbitMQSession | None:
        """The session, None when another has it, or when it must have messages and has none."""
        queue = self._index.queue
        lock = await self._locks.acquire(session_lock(queue, group))
        if lock is None:
            return None
        try:
            await self._link.calm()
            count = await self._index.count(group)
            if count is None and not is_choosy:
                await self._index.make_safely(group)
        except BaseException:
            await self._locks.release(lock)
            raise
        if is_choosy and not count:
            await self._locks.release(lock)
            return None
        context = RabbitMQSessionContext(
            queue=queue,
            id=group,
            session_queue=session_queue(queue, group),
            address=self._link.address,
            terms=terms,
        )
        session = RabbitMQSession(
            context,
            lock,
            self._topology,
            self._index,
            clock=self._clock,
            let_go=self._let_go,
        )
        session.state.rests_until_s = self._rests_until_s.pop(group, 0.0)
        self._open.add(session)
        return session

    def _let_go(self, session: RabbitMQSession) -> asyncio.Task[None]:
        return self._chores.start(self._release(session), "release")

    async def _release(self, session: RabbitMQSession) -> None:
        """Hand back, unlock, and only then look whether a note is due: what is sorted
        before that look is noted here, what is sorted after it finds the lock free.
        """
        await session.finished()
        self._open.discard(session)
        rests_s = max(session.state.rests_until_s - self._clock.now_s(), 0.0)
        if rests_s > 0:
            self._rests_until_s[session.id] = session.state.rests_until_s
        self._forget_rested()
        try:
            await self._hand_back(session)
            await self._locks.release(session.lock)
            self._released.set()
            if len(session.hand) or await self._index.count(session.id):
                await self._index.announce([session.id], delay_s=rests_s)
        except GatewayError as error:
            # The sorter finds the session when it looks around.
            _log.warning(vocabulary.SESSION_RELEASE_FAILED, session=session.id, error=str(error))

    async def _hand_back(self, session: RabbitMQSession) -> None:
        """Return when what was in flight is seen in the queue again: the broker takes a moment,
        and the next session must not find the session empty.
        """
        if session.lock.is_gone or not len(session.hand):
            return
        await self._keep_uncounted(session)
        await close_channel(session.lock.channel)
        try:
            async with self._clock.timeout(HAND_BACK_S):
                while (await self._index.count(session.id) or 0) < len(session.hand):
                    await self._clock.sleep(0.01)
        except TimeoutError:
            # The queue of an earlier version: the broker itself dead-letters from it.
            return

    async def _keep_uncounted(self, session: RabbitMQSession) -> None:
        """Before the broker counts them: a process that dies between the two has not tried them."""
        uncounted = session.uncounted()
        if not uncounted:
            return
        try:
            async with self._clock.timeout(CLOSING_S / 2):
                await self._index.keep_uncounted(session.id, uncounted)
        except (PumpError, TimeoutError) as error:
            _log.warning(vocabulary.SESSION_RELEASE_FAILED, session=session.id, error=repr(error))

    def _forget_rested(self) -> None:
        now_s = self._clock.now_s()
        resting = {group: at_s for group, at_s in self._rests_until_s.items() if at_s > now_s}
        self._rests_until_s = resting

    async def _settle(self, note: Delivery, action: Action) -> None:
        try:
            await self._notes.settle([Settlement(note, action)])
        except GatewayError as error:
            _log.warning(vocabulary.SETTLE_FAILED, error=str(error))
