"""The engine: the asynchronous shell over all queues of one broker.

It reads the clock, lets the state machine decide, writes the journal, and finishes in the
journal's callback. Everything between two awaits is atomic, which is all the locking there is:
an engine belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, wait
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf

from pump.clock import Clock, Timer
from pump.errors import QueueMismatch, QueueNotFound
from pump.message import Delivery, Message
from pump.outcome import ABANDON, Action
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from .._kit.redrive import dead_letter
from .journal import (
    AnsweredRequest,
    Declared,
    Done,
    EngineJournal,
    Entry,
    Extended,
    Forgotten,
    Lapsed,
    Leased,
    MovedEntry,
    NullJournal,
    PurgedEntry,
    Reserve,
    SentEntry,
    Settled,
)
from .record import Arrival, Detached, Lapse, LeaseBatch, Record
from .settings import EngineSettings, is_bare
from .state import QueueState

# A redrive whose write failed is tried again after this long.
_REDRIVE_RETRY_S = 1.0


class QueueEngine:
    """Send, receive, settle and extend on named queues, with SQS's semantics and more."""

    def __init__(self, clock: Clock, journal: EngineJournal | None = None) -> None:
        self.clock = clock
        self.rooms: dict[str, QueueWaiters] = {}
        self.next_seq = 1
        self.journal: EngineJournal = NullJournal() if journal is None else journal
        self.is_closed = False
        self.reserve: Reserve | None = None
        self.spares: Callable[[str], bool] | None = None
        """Whether an owner's leases that are over stay for now, until `catch_up` looks again."""
        self.until_heard: Callable[[], Awaitable[None]] | None = None
        """Waits until no lease is spared any more, so that what is over is not counted."""

    # Messages.

    async def send(
        self,
        queue: str,
        messages: Sequence[Message],
        *,
        delay_s: float = 0.0,
        request: AnsweredRequest | None = None,
    ) -> list[str]:
        """Store messages and return their ids once they are as durable as the journal."""
        room = self.room(queue)
        state = room.state
        if self.reserve is not None and not self.reserve.has_room(messages):
            await self.reserve.require_room(messages)
        arrival = state.prepare(
            messages, first_seq=self.next_seq, now_s=self.clock.now_s(), delay_s=delay_s
        )
        self.next_seq += len(arrival.records)
        entry = SentEntry(queue, arrival, state.deduplication.window_s, request)
        await self.write(entry, partial(self._finish_send, room, arrival))
        return [message.id for message in messages]

    async def receive(
        self,
        queue: str,
        *,
        max_count: int,
        wait_s: float,
        lease_s: float,
        owner: str = "",
        request: int | None = None,
    ) -> list[Delivery]:
        """Lease messages, waiting up to `wait_s` for the first."""
        room = self.room(queue)
        deadline_s = self.clock.now_s() + wait_s
        left_s = wait_s
        while True:
            now_s = self.promote(room)
            batch = room.state.take(
                max_count, lease_s=lease_s, now_s=now_s, owner=owner, request=request
            )
            if batch is not None:
                room.stir()
                return await self.hand_out(room, batch)
            if left_s <= 0 or self.is_closed:
                return []
            is_woken = await room.wait(left_s)
            left_s = deadline_s - self.clock.now_s() if is_woken else 0.0

    async def settle(
        self,
        queue: str,
        receipts: Sequence[str],
        actions: Sequence[Action],
        *,
        request: AnsweredRequest | None = None,
        asked_at_s: float | None = None,
    ) -> list[int]:
        """Apply actions and return the positions of those whose receipt was not valid, or not any
        more when it was asked.
        """
        room = self.room(queue)
        now_s = self.promote(room)
        self._end_overdue(room, receipts, earliest(now_s, asked_at_s))
        detached = room.state.detach(receipts, actions)
        if detached.batches:
            burials: list[Future[None]] = []
            finish = partial(self._finish_settle, room, detached, now_s, burials)
            await self.write(Settled(queue, detached, now_s, request), finish)
            if burials:
                # Only so that the caller finds the dead letter; a failed move is retried.
                await wait(burials)
        return detached.refused

    async def extend(
        self,
        queue: str,
        receipts: Sequence[str],
        *,
        lease_s: float,
        asked_at_s: float | None = None,
    ) -> list[int]:
        """Make leases end `lease_s` from now, or from when it was asked; return the positions of
        invalid receipts.
        """
        room = self.room(queue)
        now_s = earliest(self.promote(room), asked_at_s)
        self._end_overdue(room, receipts, now_s)
        extension = room.state.extend(receipts, until_s=now_s + lease_s)
        room.stir()
        if extension.moved or extension.split:
            await self.write(Extended(queue, extension), _ignore)
        return extension.refused

    async def end_leases(self, owner: str) -> None:
        """Make everything available again that `owner` holds, sessions too; each delivery counts
        as an attempt.
        """
        for room in list(self.rooms.values()):
            held = {r.batch: None for r in room.state.leases.values() if r.batch is not None}
            theirs = [batch for batch in held if batch.owner == owner]
            locks = [lock for lock in room.state.sessions if lock.owner == owner]
            if theirs or locks:
                now_s = self.clock.now_s()
                lapse = room.state.end_leases(theirs, now_s=now_s, locks=locks)
                tickets = self._finish_lapse(room, lapse)
                room.stir()
                if tickets:
                    await wait(tickets)

    def served(self, queue: str, owner: str, request: int) -> list[Delivery]:
        """What a remote receive has leased, when its answer may have got lost."""
        room = self.room(queue)
        self.promote(room)
        batch = _find_batch(room, owner, request)
        return [] if batch is None else _deliveries(queue, batch)

    def abandon_request(self, owner: str, request: int) -> None:
        """Take back what a remote receive leased when its answer reached nobody."""
        for room in self.rooms.values():
            batch = _find_batch(room, owner, request)
            if batch is not None:
                self.abandon(room, _receipts(batch))

    async def forget(self, owner: str, *, below: int) -> None:
        """Drop the answers kept for an owner's requests below a number."""
        await self.write(Forgotten(owner, below), _ignore)

    # Queues.

    def room(self, queue: str) -> QueueWaiters:
        """Find a queue, or raise `QueueNotFound`."""
        try:
            return self.rooms[queue]
        except KeyError:
            raise QueueNotFound(queue) from None

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """Create, validate or assume a queue; `EngineSettings.from_spec` says what can be wrong."""
        await self.declare(EngineSettings.from_spec(spec), make, is_name_only=is_bare(spec))

    async def declare(
        self, wanted: EngineSettings, make: MakeChannels, *, is_name_only: bool
    ) -> None:
        """Create, validate or assume a queue.

        Creating one that exists with other settings changes them, unless only the name counts:
        that of a rejection target must not undo what its own subscription set.
        """
        if make is MakeChannels.ASSUME:
            return
        if make is MakeChannels.VALIDATE:
            self._validate(wanted, is_name_only=is_name_only)
            return
        target = wanted.dead_letter_queue
        if target is not None and target not in self.rooms:
            await self._declare(EngineSettings(name=target))
        existing = self.rooms.get(wanted.name)
        if existing is None or (not is_name_only and existing.state.settings != wanted):
            await self._declare(wanted)

    async def queues(self) -> list[QueueStats]:
        """Count what is in every queue."""
        for room in self.rooms.values():
            self.promote(room)
        if self.until_heard is not None:
            await self.until_heard()
        now_s = self.clock.now_s()
        return [self.rooms[name].state.stats(now_s) for name in sorted(self.rooms)]

    async def peek(self, queue: str, *, max_count: int) -> list[Message]:
        """Look at the next available messages."""
        room = self.room(queue)
        self.promote(room)
        return room.state.peek(max_count)

    async def purge(self, queue: str) -> int:
        """Remove every message, in flight or not."""
        room = self.room(queue)
        counts: list[int] = []

        def finish(error: Exception | None) -> None:
            if error is None:
                counts.append(room.state.clear())
                # A group that was in flight is free for who waits for its session.
                room.stir()

        await self.write(PurgedEntry(queue), finish)
        return counts[0]

    def admit(self, settings: EngineSettings) -> QueueWaiters:
        """Make a queue, or change its settings, in memory only."""
        room = self.rooms.get(settings.name)
        if room is None:
            room = QueueWaiters(QueueState(settings), self.clock, self.promote)
            self.rooms[settings.name] = room
        else:
            room.state.reconfigure(settings)
            room.stir()
        return room

    def close(self) -> None:
        """Send waiting receives home empty, and disarm every timer."""
        self.is_closed = True
        for room in self.rooms.values():
            room.close()

    def reopen(self) -> None:
        """Let receives wait again."""
        self.is_closed = False

    # Finishing what the journal has written.

    async def write(self, entry: Entry, done: Done) -> None:
        """Have an entry written; `done` is called before this returns."""
        ticket = self.journal.write(entry, done)
        if ticket is not None:
            await ticket

    def _finish_send(self, room: QueueWaiters, arrival: Arrival, error: Exception | None) -> None:
        if error is not None:
            room.state.deduplication.withdraw(arrival.keys)
            return
        room.state.add(arrival.records)
        room.stir()

    async def hand_out(self, room: QueueWaiters, batch: LeaseBatch) -> list[Delivery]:
        """Deliver what was leased once that is written; nothing is hidden when it is not."""

        def finish(error: Exception | None) -> None:
            if error is not None:
                room.state.revoke(batch, now_s=self.clock.now_s())
                room.stir()

        ticket = self.journal.write(Leased(room.name, batch), finish)
        if ticket is not None:
            try:
                await ticket
            except BaseException:
                self.abandon(room, _receipts(batch))
                raise
        return _deliveries(room.name, batch)

    def abandon(self, room: QueueWaiters, receipts: Sequence[str]) -> Future[None] | None:
        """Hand back what is leased; the end of the write, unless it has ended already."""
        if not receipts:
            return None
        now_s = self.clock.now_s()
        detached = room.state.detach(receipts, [ABANDON] * len(receipts))
        finish = partial(self._finish_settle, room, detached, now_s, [])
        return self.journal.write(Settled(room.name, detached, now_s), finish)

    def _finish_settle(
        self,
        room: QueueWaiters,
        detached: Detached,
        now_s: float,
        burials: list[Future[None]],
        error: Exception | None,
    ) -> None:
        state = room.state
        if error is not None:
            state.reattach(detached.records())
        else:
            state.finish_acked(detached.acked)
            if detached.returned:
                dead = state.finish_returned(detached.returned, now_s=now_s)
                burials += self._bury(room, dead)
        room.stir()

    def promote(self, room: QueueWaiters) -> float:
        """Let a queue catch up with the clock, and return the time."""
        now_s = self.clock.now_s()
        lapse = room.state.promote(now_s + TICK_S, self.spares)
        if lapse is not None and (lapse.batches or lapse.locks):
            self._finish_lapse(room, lapse)
        return now_s

    def _end_overdue(self, room: QueueWaiters, receipts: Sequence[str], asked_at_s: float) -> None:
        """End the leases that are spared and yet named too late: an owner's requests come in order,
        so it has asked for no more time.
        """
        if self.spares is None or not room.state.agenda.may_be_due(asked_at_s + TICK_S):
            return
        records = (room.state.leases.get(receipt) for receipt in receipts)
        named = {record.batch: None for record in records if record is not None and record.batch}
        overdue = [batch for batch in named if batch.expires_s <= asked_at_s + TICK_S]
        if overdue:
            lapse = room.state.end_leases(overdue, now_s=self.clock.now_s())
            self._finish_lapse(room, lapse)
            room.stir()

    def catch_up(self) -> None:
        """Let every queue catch up with the clock, and who waits there look."""
        now_s = self.clock.now_s()
        for room in self.rooms.values():
            if room.state.agenda.may_be_due(now_s + TICK_S):
                self.promote(room)
                room.stir()

    def _finish_lapse(self, room: QueueWaiters, lapse: Lapse) -> list[Future[None]]:
        ticket = self.journal.write(Lapsed(room.name, lapse), _ignore)
        burials = self._bury(room, lapse.dead)
        return burials if ticket is None else [ticket, *burials]

    def _bury(self, room: QueueWaiters, dead: Sequence[Record]) -> list[Future[None]]:
        """Move messages that had their last delivery to the dead-letter queue (T5)."""
        if not dead:
            return []
        target = self.rooms[room.state.settings.dead_letter_queue or ""]
        now_s, wall_s = self.clock.now_s(), self.clock.time_s()
        tickets = []
        for record in dead:
            message = dead_letter(
                record.message, queue=room.name, attempt=record.attempt, wall_s=wall_s
            )
            copy = Record(self.next_seq, message, now_s)
            self.next_seq += 1
            done = partial(self._finish_burial, room, record, target, copy)
            tickets.append(self.journal.write(MovedEntry(record, target.name, copy), done))
        return [ticket for ticket in tickets if ticket is not None]

    def _finish_burial(
        self,
        room: QueueWaiters,
        record: Record,
        target: QueueWaiters,
        copy: Record,
        error: Exception | None,
    ) -> None:
        if error is not None:
            room.state.postpone(record, until_s=self.clock.now_s() + _REDRIVE_RETRY_S)
        else:
            room.state.finish_acked([record])
            target.state.add([copy])
            target.stir()
        room.stir()

    async def _declare(self, settings: EngineSettings) -> None:
        def finish(error: Exception | None) -> None:
            if error is None:
                self.admit(settings)

        await self.write(Declared(settings), finish)

    def _validate(self, wanted: EngineSettings, *, is_name_only: bool) -> None:
        existing = self.room(wanted.name).state.settings
        if wanted.dead_letter_queue is not None:
            self.room(wanted.dead_letter_queue)
        differences = existing.differences(wanted)
        if differences and not is_name_only:
            raise QueueMismatch(wanted.name, differences)


def _find_batch(room: QueueWaiters, owner: str, request: int) -> LeaseBatch | None:
    """What a remote request has leased, as far as it is still leased."""
    held = (record.batch for record in room.state.leases.values())
    return next((b for b in held if b and b.owner == owner and b.request == request), None)


def _receipts(batch: LeaseBatch) -> list[str]:
    return [record.receipt for record in batch.members.values()]


def _deliveries(queue: str, batch: LeaseBatch) -> list[Delivery]:
    """Hand over what is leased."""
    return [
        Delivery(
            message=record.message,
            queue=queue,
            receipt=record.receipt,
            attempt=record.attempt,
            lease_expires_at_s=batch.expires_s,
            broker_id=record.seq,
        )
        for record in batch.members.values()
    ]


def earliest(now_s: float, asked_at_s: float | None) -> float:
    """From when an extension counts: a request that lay unread is as old as its question."""
    return now_s if asked_at_s is None else min(now_s, asked_at_s)


def _ignore(error: Exception | None) -> None:
    """Nothing to finish: memory already says what the entry says."""


# A room: one queue's state, those who wait for its messages, and its one timer.

# What falls due within this is due now, so that sums of floats never make a test, or a timer,
# miss the moment by a rounding error. Far below any lease that makes sense.
TICK_S = 1e-6


class QueueWaiters:
    """Wakes waiting receives when something may have become available; never polls.

    The timer is armed only while somebody waits, or while a lease could end in a redrive.
    """

    def __init__(
        self, state: QueueState, clock: Clock, on_due: Callable[[QueueWaiters], object]
    ) -> None:
        self.state = state
        self._clock = clock
        self._on_due = on_due
        self._waiters: deque[asyncio.Future[bool]] = deque()
        self._watchers: deque[asyncio.Future[bool]] = deque()
        """Those who wait for something that only they can use: a session, or a message of it."""
        self._timer: Timer | None = None
        self._timer_due_s = inf

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.state.settings.name

    async def wait(self, wait_s: float) -> bool:
        """Wait for a reason to look again; False when `wait_s` have passed without one."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            return await self._wait_among(self._waiters, woken, wait_s)
        except asyncio.CancelledError:
            # Woken, then cancelled before it could look: the reason is another waiter's now.
            if woken.done() and not woken.cancelled():
                self.stir()
            raise

    async def watch(self, wait_s: float) -> bool:
        """As `wait`, for what concerns a session: every change is a reason."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        return await self._wait_among(self._watchers, woken, wait_s)

    def stir(self) -> None:
        """Tell the room that its state has changed.

        Wakes one waiter; when that one has taken its share and left some, it stirs again. Wakes
        all watchers: which of them it concerns, only they know.
        """
        if self._watchers:
            self._wake_watchers()
        if self._waiters and self.state.line.has_candidates():
            self._wake_one()
        self._arm()

    def close(self) -> None:
        """Send every waiter away and disarm the timer."""
        self._wake_watchers()
        while self._waiters:
            self._wake_one()
        self._disarm()

    async def _wait_among(
        self, waiters: deque[asyncio.Future[bool]], woken: asyncio.Future[bool], wait_s: float
    ) -> bool:
        timer = self._clock.call_later(wait_s, lambda: _wake(woken, False))
        waiters.append(woken)
        self._arm()
        try:
            return await woken
        finally:
            timer.cancel()
            if woken in waiters:
                waiters.remove(woken)

    def _wake_watchers(self) -> None:
        watchers = list(self._watchers)
        self._watchers.clear()
        for woken in watchers:
            _wake(woken, True)

    def _wake_one(self) -> None:
        while self._waiters:
            if _wake(self._waiters.popleft(), True):
                return

    def _arm(self) -> None:
        state = self.state
        can_redrive = state.settings.max_receive_count is not None and state.leases
        if not self._waiters and not self._watchers and not can_redrive:
            return
        due_s = state.agenda.next_due_s()
        if due_s >= self._timer_due_s:
            return
        self._disarm()
        self._timer_due_s = due_s
        delay_s = due_s - self._clock.now_s() - TICK_S / 2
        self._timer = self._clock.call_later(max(0.0, delay_s), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_due_s = inf
        self._on_due(self)
        self.stir()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due_s = inf


def _wake(woken: asyncio.Future[bool], result: bool) -> bool:
    if woken.done():
        return False
    woken.set_result(result)
    return True
