"""Sessions: accepting the lock on a group, the one asked for or the next that has messages."""

from __future__ import annotations

import asyncio

from pump.clock import Clock
from pump.errors import GatewayError
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, ACK, Action, Settlement

from .._kit.tasks import BackgroundTasks
from .connection import CLOSING_S, RabbitMQLink, close_channel
from .consumer import RabbitMQConsumer
from .leases import Terms
from .names import session_lock, session_queue
from .session import RabbitMQSession, SessionPlace
from .session_index import ConsumerSessionLocks, SessionIndex, group_noted
from .sorter import Sorter
from .topology import Topology

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
                await self._index.make(group)
        except BaseException:
            await self._locks.release(lock)
            raise
        if is_choosy and not count:
            await self._locks.release(lock)
            return None
        place = SessionPlace(
            queue=queue,
            id=group,
            session_queue=session_queue(queue, group),
            address=self._link.address,
            terms=terms,
        )
        session = RabbitMQSession(
            place, lock, self._topology, clock=self._clock, let_go=self._let_go
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
        await close_channel(session.lock.channel)
        try:
            async with self._clock.timeout(HAND_BACK_S):
                while (await self._index.count(session.id) or 0) < len(session.hand):
                    await self._clock.sleep(0.01)
        except TimeoutError:
            # The broker has dead-lettered some of it: that was their last delivery.
            return

    def _forget_rested(self) -> None:
        now_s = self._clock.now_s()
        resting = {group: at_s for group, at_s in self._rests_until_s.items() if at_s > now_s}
        self._rests_until_s = resting

    async def _settle(self, note: Delivery, action: Action) -> None:
        try:
            await self._notes.settle([Settlement(note, action)])
        except GatewayError as error:
            _log.warning(vocabulary.SETTLE_FAILED, error=str(error))
