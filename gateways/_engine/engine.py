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

from .._kit.queues import dead_letter
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
from .record import Arrival, Detached, EngineSettings, Lapse, LeaseBatch, Record, is_bare
from .state import QueueState

# A redrive whose write failed is tried again after this long.
_REDRIVE_RETRY_S = 1.0


class QueueEngine:
    """Send, receive, settle and extend on named queues, with SQS's semantics and more."""

    def __init__(self, clock: Clock, journal: EngineJournal | None = None) -> None:
        self.clock = clock
        self.waiters_by_queue: dict[str, QueueWaiters] = {}
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
        waiters = self.waiters_of(queue)
        state = waiters.state
        if self.reserve is not None and not self.reserve.has_room(messages):
            await self.reserve.require_room(messages)
        arrival = state.prepare(
            messages, first_seq=self.next_seq, now_s=self.clock.now_s(), delay_s=delay_s
        )
        self.next_seq += len(arrival.records)
        entry = SentEntry(queue, arrival, state.deduplication.window_s, request)
        await self.write(entry, partial(self._finish_send, waiters, arrival))
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
        waiters = self.waiters_of(queue)
        deadline_s = self.clock.now_s() + wait_s
        left_s = wait_s
        while True:
            now_s = self.promote(waiters)
            batch = waiters.state.take(
                max_count, lease_s=lease_s, now_s=now_s, owner=owner, request=request
            )
            if batch is not None:
                waiters.notify()
                return await self.hand_out(waiters, batch)
            if left_s <= 0 or self.is_closed:
                return []
            is_woken = await waiters.wait(left_s)
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
        waiters = self.waiters_of(queue)
        now_s = self.promote(waiters)
        self._end_overdue(waiters, receipts, earliest(now_s, asked_at_s))
        detached = waiters.state.detach(receipts, actions)
        if detached.batches:
            moves: list[Future[None]] = []
            finish = partial(self._finish_settle, waiters, detached, now_s, moves)
            await self.write(Settled(queue, detached, now_s, request), finish)
            if moves:
                # Only so that the caller finds the dead letter; a failed move is retried.
                await wait(moves)
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
        waiters = self.waiters_of(queue)
        now_s = earliest(self.promote(waiters), asked_at_s)
        self._end_overdue(waiters, receipts, now_s)
        extension = waiters.state.extend(receipts, until_s=now_s + lease_s)
        waiters.notify()
        if extension.moved or extension.split:
            await self.write(Extended(queue, extension), _ignore)
        return extension.refused

    async def end_leases(self, owner: str) -> None:
        """Make everything available again that `owner` holds, sessions too; each delivery counts
        as an attempt.
        """
        for waiters in list(self.waiters_by_queue.values()):
            held = {r.batch: None for r in waiters.state.leases.values() if r.batch is not None}
            theirs = [batch for batch in held if batch.owner == owner]
            locks = [lock for lock in waiters.state.sessions if lock.owner == owner]
            if theirs or locks:
                now_s = self.clock.now_s()
                lapse = waiters.state.end_leases(theirs, now_s=now_s, locks=locks)
                tickets = self._finish_lapse(waiters, lapse)
                waiters.notify()
                if tickets:
                    await wait(tickets)

    def served(self, queue: str, owner: str, request: int) -> list[Delivery]:
        """What a remote receive has leased, when its answer may have got lost."""
        waiters = self.waiters_of(queue)
        self.promote(waiters)
        batch = _find_batch(waiters, owner, request)
        return [] if batch is None else _deliveries(queue, batch)

    def abandon_request(self, owner: str, request: int) -> None:
        """Take back what a remote receive leased when its answer was not delivered."""
        for waiters in self.waiters_by_queue.values():
            batch = _find_batch(waiters, owner, request)
            if batch is not None:
                self.abandon(waiters, _receipts(batch))

    async def forget(self, owner: str, *, below: int) -> None:
        """Drop the answers kept for an owner's requests below a number."""
        await self.write(Forgotten(owner, below), _ignore)

    # Queues.

    def waiters_of(self, queue: str) -> QueueWaiters:
        """Find a queue, or raise `QueueNotFound`."""
        try:
            return self.waiters_by_queue[queue]
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
        if target is not None and target not in self.waiters_by_queue:
            await self._declare(EngineSettings(name=target))
        existing = self.waiters_by_queue.get(wanted.name)
        if existing is None or (not is_name_only and existing.state.settings != wanted):
            await self._declare(wanted)

    async def queues(self) -> list[QueueStats]:
        """Count what is in every queue."""
        for waiters in self.waiters_by_queue.values():
            self.promote(waiters)
        if self.until_heard is not None:
            await self.until_heard()
        now_s = self.clock.now_s()
        return [
            self.waiters_by_queue[name].state.stats(now_s) for name in sorted(self.waiters_by_queue)
        ]

    async def peek(self, queue: str, *, max_count: int) -> list[Message]:
        """Look at the next available messages."""
        waiters = self.waiters_of(queue)
        self.promote(waiters)
        return waiters.state.peek(max_count)

    async def purge(self, queue: str) -> int:
        """Remove every message, in flight or not."""
        waiters = self.waiters_of(queue)
        counts: list[int] = []

        def finish(error: Exception | None) -> None:
            if error is None:
                counts.append(waiters.state.clear())
                # A group that was in flight is free for waiters for its session.
                waiters.notify()

        await self.write(PurgedEntry(queue), finish)
        return counts[0]

    def admit(self, settings: EngineSettings) -> QueueWaiters:
        """Make a queue, or change its settings, in memory only."""
        waiters = self.waiters_by_queue.get(settings.name)
        if waiters is None:
            waiters = QueueWaiters(QueueState(settings), self.clock, self.promote)
            self.waiters_by_queue[settings.name] = waiters
        else:
            waiters.state.reconfigure(settings)
            waiters.notify()
        return waiters

    def close(self) -> None:
        """Return waiting receives empty, and disarm every timer."""
        self.is_closed = True
        for waiters in self.waiters_by_queue.values():
            waiters.close()

    def reopen(self) -> None:
        """Let receives wait again."""
        self.is_closed = False

    # Finishing what the journal has written.

    async def write(self, entry: Entry, done: Done) -> None:
        """Have an entry written; `done` is called before this returns."""
        ticket = self.journal.write(entry, done)
        if ticket is not None:
            await ticket

    def _finish_send(
        self, waiters: QueueWaiters, arrival: Arrival, error: Exception | None
    ) -> None:
        if error is not None:
            waiters.state.deduplication.withdraw(arrival.keys)
            return
        waiters.state.add(arrival.records)
        waiters.notify()

    async def hand_out(self, waiters: QueueWaiters, batch: LeaseBatch) -> list[Delivery]:
        """Deliver what was leased once that is written; nothing is hidden when it is not."""

        def finish(error: Exception | None) -> None:
            if error is not None:
                waiters.state.revoke(batch, now_s=self.clock.now_s())
                waiters.notify()

        ticket = self.journal.write(Leased(waiters.name, batch), finish)
        if ticket is not None:
            try:
                await ticket
            except BaseException:
                self.abandon(waiters, _receipts(batch))
                raise
        return _deliveries(waiters.name, batch)

    def abandon(self, waiters: QueueWaiters, receipts: Sequence[str]) -> Future[None] | None:
        """Hand back what is leased; the end of the write, unless it has ended already."""
        if not receipts:
            return None
        now_s = self.clock.now_s()
        detached = waiters.state.detach(receipts, [ABANDON] * len(receipts))
        finish = partial(self._finish_settle, waiters, detached, now_s, [])
        return self.journal.write(Settled(waiters.name, detached, now_s), finish)

    def _finish_settle(
        self,
        waiters: QueueWaiters,
        detached: Detached,
        now_s: float,
        moves: list[Future[None]],
        error: Exception | None,
    ) -> None:
        state = waiters.state
        if error is not None:
            state.reattach(detached.records())
        else:
            state.finish_acked(detached.acked)
            if detached.returned:
                dead = state.finish_returned(detached.returned, now_s=now_s)
                moves += self._dead_letter(waiters, dead)
        waiters.notify()

    def promote(self, waiters: QueueWaiters) -> float:
        """Let a queue catch up with the clock, and return the time."""
        now_s = self.clock.now_s()
        lapse = waiters.state.promote(now_s + TICK_S, self.spares)
        if lapse is not None and (lapse.batches or lapse.locks):
            self._finish_lapse(waiters, lapse)
        return now_s

    def _end_overdue(
        self, waiters: QueueWaiters, receipts: Sequence[str], asked_at_s: float
    ) -> None:
        """End the leases that are spared and yet named too late: an owner's requests come in order,
        so it has asked for no more time.
        """
        if self.spares is None or not waiters.state.timers.may_be_due(asked_at_s + TICK_S):
            return
        records = (waiters.state.leases.get(receipt) for receipt in receipts)
        named = {record.batch: None for record in records if record is not None and record.batch}
        overdue = [batch for batch in named if batch.expires_s <= asked_at_s + TICK_S]
        if overdue:
            lapse = waiters.state.end_leases(overdue, now_s=self.clock.now_s())
            self._finish_lapse(waiters, lapse)
            waiters.notify()

    def catch_up(self) -> None:
        """Let every queue catch up with the clock, and its waiters look."""
        now_s = self.clock.now_s()
        for waiters in self.waiters_by_queue.values():
            if waiters.state.timers.may_be_due(now_s + TICK_S):
                self.promote(waiters)
                waiters.notify()

    def _finish_lapse(self, waiters: QueueWaiters, lapse: Lapse) -> list[Future[None]]:
        ticket = self.journal.write(Lapsed(waiters.name, lapse), _ignore)
        moves = self._dead_letter(waiters, lapse.dead)
        return moves if ticket is None else [ticket, *moves]

    def _dead_letter(self, waiters: QueueWaiters, dead: Sequence[Record]) -> list[Future[None]]:
        """Move messages that had their last delivery to the dead-letter queue (T5)."""
        if not dead:
            return []
        target = self.waiters_by_queue[waiters.state.settings.dead_letter_queue or ""]
        now_s, wall_s = self.clock.now_s(), self.clock.time_s()
        tickets = []
        for record in dead:
            message = dead_letter(
                record.message, queue=waiters.name, attempt=record.attempt, wall_s=wall_s
            )
            copy = Record(self.next_seq, message, now_s)
            self.next_seq += 1
            done = partial(self._finish_move, waiters, record, target, copy)
            tickets.append(self.journal.write(MovedEntry(record, target.name, copy), done))
        return [ticket for ticket in tickets if ticket is not None]

    def _finish_move(
        self,
        waiters: QueueWaiters,
        record: Record,
        target: QueueWaiters,
        copy: Record,
        error: Exception | None,
    ) -> None:
        if error is not None:
            waiters.state.postpone(record, until_s=self.clock.now_s() + _REDRIVE_RETRY_S)
        else:
            waiters.state.finish_acked([record])
            target.state.add([copy])
            target.notify()
        waiters.notify()

    async def _declare(self, settings: EngineSettings) -> None:
        def finish(error: Exception | None) -> None:
            if error is None:
                self.admit(settings)

        await self.write(Declared(settings), finish)

    def _validate(self, wanted: EngineSettings, *, is_name_only: bool) -> None:
        existing = self.waiters_of(wanted.name).state.settings
        if wanted.dead_letter_queue is not None:
            self.waiters_of(wanted.dead_letter_queue)
        differences = existing.differences(wanted)
        if differences and not is_name_only:
            raise QueueMismatch(wanted.name, differences)


def _find_batch(waiters: QueueWaiters, owner: str, request: int) -> LeaseBatch | None:
    """What a remote request has leased, as far as it is still leased."""
    held = (record.batch for record in waiters.state.leases.values())
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


# One queue's state, its waiters, and its one timer.

# What falls due within this is due now, so that sums of floats never make a test, or a timer,
# miss the moment by a rounding error. Far below any lease that makes sense.
TICK_S = 1e-6


class QueueWaiters:
    """Wakes waiting receives when something may have become available; never polls.

    The timer is armed only while a receive waits, or while a lease could end in a redrive.
    """

    def __init__(
        self, state: QueueState, clock: Clock, on_due: Callable[[QueueWaiters], object]
    ) -> None:
        self.state = state
        self._clock = clock
        self._on_due = on_due
        self._waiters: deque[asyncio.Future[bool]] = deque()
        self._watchers: deque[asyncio.Future[bool]] = deque()
        """Waiters for something that only they can use: a session, or a message of it."""
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
                self.notify()
            raise

    async def watch(self, wait_s: float) -> bool:
        """As `wait`, for what concerns a session: every change is a reason."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        return await self._wait_among(self._watchers, woken, wait_s)

    def notify(self) -> None:
        """Wake waiters after a change of state.

        Wakes one waiter; when that one has taken its share and left some, it notifies again. Wakes
        all watchers: only they know which of them it concerns.
        """
        if self._watchers:
            self._wake_watchers()
        if self._waiters and self.state.order.has_candidates():
            self._wake_one()
        self._arm()

    def close(self) -> None:
        """Wake every waiter without a message and disarm the timer."""
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
        due_s = state.timers.next_due_s()
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
        self.notify()

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
