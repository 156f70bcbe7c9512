"""The committer: the one task of a process that goes through a queue's head.

It does one thing at a time. What is asked of it meanwhile goes together into the next commit, so
under load a commit is shared by all that came during the one before, and an idle process commits
nothing. In this order:

1. commit what was asked for, with a `Take` for each receive that may get something by it (that
   is a look as well);
2. look at the head, if a call asks for it, or receives wait and the pause is over;
3. commit what only time brings: last deliveries that are over, dead letters without an owner;
4. sweep, now and then.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TypeVar

import attrs

from pump.clock import Clock, Timer
from pump.errors import ConnectionFailed, GatewayError
from pump.tasks import look_at

from ..layout import Surroundings
from ..store.objects import DRIFT, ObjectStore, Reply, Request, Steps, Unknown, WriteConflict, drive
from .commit import Committed, Draft, commit, sweep
from .context import ReceiveAnswer, WaitingReceive, WaitingReceives, answer
from .entries import UNCOUNTED, Adopt, Op, SendOperation, SettleOperation, Take, hold
from .follower import Follower, clean, refresh
from .state import Applied, Available, Result, SendResult, TakenMessage, Takings, configure

_T = TypeVar("_T")

SWEEP_S = 3600.0
"""How often a process that commits sweeps, and how old an object must be to be swept."""
UPKEEP_AGAIN_S = 5.0
"""After a failure, upkeep waits this long."""
_LATE_S = 0.001
"""Timers for server time ring this much late: a sum of floats must not make them early."""


class Committer:
    """Commits, looks, and answers waiting receives. `on_applied` gets all that was applied."""

    def __init__(
        self,
        follower: Follower,
        surroundings: Surroundings,
        receives: WaitingReceives,
        on_applied: Callable[[Sequence[Applied]], None],
    ) -> None:
        self.follower = follower
        self._around = surroundings
        self._clock = surroundings.clock
        self._time = surroundings.time
        self._receives = receives
        self._on_applied = on_applied
        self._operations: list[PendingOperation] = []
        self._look_waiters: list[Future[None]] = []
        self._is_asserted = False
        self._count = 0
        self._looked_s = -inf
        self._sweep_s = inf
        self._upkeep_s = -inf
        self._wake = asyncio.Event()
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._is_closing = False

    # What others ask of it.

    def submit(self, op: Op) -> Future[Fulfilled]:
        """Have an operation committed. Cancelling the future changes nothing."""
        done: Future[Fulfilled] = asyncio.get_running_loop().create_future()
        done.add_done_callback(look_at)
        self._operations.append(PendingOperation(op, done))
        self._start()
        return done

    def hand_back(self, taken: Iterable[TakenMessage]) -> None:
        """Make available again what was leased and not delivered; it is not counted."""
        receipts = [each.receipt for each in taken]
        if receipts:
            self.submit(SettleOperation(hold(receipts), (UNCOUNTED,) * len(receipts)))

    def ask(self, ask: WaitingReceive) -> None:
        """Let a receive wait for its answer."""
        self._receives.wait(ask)
        self._start()

    def withdraw(self, ask: WaitingReceive) -> None:
        """Give up a receive, wherever it is: what it got is handed back."""
        self._receives.leave(ask)
        if ask.answer.done() and not ask.answer.cancelled() and ask.answer.exception() is None:
            self.hand_back(ask.answer.result().taken)

    async def look(self) -> None:
        """Know what the store has now."""
        looked: Future[None] = asyncio.get_running_loop().create_future()
        looked.add_done_callback(look_at)
        self._look_waiters.append(looked)
        self._start()
        await looked

    async def aclose(self) -> None:
        """Return waiting receives empty, finish what was asked for, and stop."""
        self._is_closing = True
        self._receives.dismiss_all()
        self._wake.set()
        if self._task is not None:
            await self._task
        # The last commit may have begun it.
        if self._cleaning is not None:
            await self._cleaning
        self._disarm()

    async def stop(self) -> None:
        """End at once what is under way; its callers get an error."""
        self._is_closing = True
        tasks = [task for task in (self._task, self._cleaning) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disarm()

    # The task.

    def _start(self) -> None:
        if self._task is None or self._task.done():
            name = f"committer of {self.follower.settings.name}"
            self._task = asyncio.create_task(self._run(), name=name)
        self._wake.set()

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                if await self._step():
                    continue
                if self._is_closing:
                    return
                self._arm()
                await self._wake.wait()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Leave no future open for a task that has ended."""
        error = self._stopped()
        fail(self._operations, [], error)
        _satisfy(self._look_waiters, error)
        self._operations, self._look_waiters = [], []
        self._receives.dismiss_all()

    def _stopped(self) -> ConnectionFailed:
        return ConnectionFailed(self.follower.keys.head, "its committer has stopped; open it again")

    async def _step(self) -> bool:
        """Do the next thing there is to do, and say whether there was one."""
        now_s = self._clock.now_s()
        asks = self._receives.choose(self._available())
        self._receives.dismiss(now_s)
        if self._operations or asks:
            operations, self._operations = self._operations, []
            await self._commit(operations, asks)
        elif self._look_waiters or self._receives.next_look_s() <= now_s:
            await self._look()
        elif self._is_closing:
            return False
        elif now_s >= self._upkeep_s and self._late_s() >= 0:
            await self._run_upkeep(now_s)
        elif now_s >= self._sweep_s:
            await self._sweep(now_s)
        else:
            return False
        return True

    async def _run_upkeep(self, now_s: float) -> None:
        if self._looked_s < now_s - self._late_s():
            # Perhaps another did it: a look is cheaper than a commit.
            await self._look()
        else:
            await self._commit([unheard(Adopt())], [])

    def _available(self) -> Available:
        """What there will be to take once the pending operations are committed."""
        if not len(self._receives):
            return Available(0, 0)
        now = self.follower.replica.available(self._time.earliest_s())
        new = sum(brings(operation.op) for operation in self._operations)
        is_strict = self.follower.replica.settings.is_strict
        return Available(now.messages + new, now.receives + (min(new, 1) if is_strict else new))

    async def _commit(self, operations: list[PendingOperation], asks: list[WaitingReceive]) -> None:
        self._count += 1
        look_waiters, self._look_waiters = self._look_waiters, []
        takes = [Take(ask.max_count, granted_s(ask.lease_s)) for ask in asks]
        operations = [*self._assert_settings(), *operations]
        draft = Draft(self._count, (*(operation.op for operation in operations), *takes))
        began_s, turns = self._clock.now_s(), self._receives.turns
        steps = commit(self.follower, draft, time=self._time, new_nonce=self._around.new_id)
        is_told = False
        try:
            committed = await self._drive(steps)
            is_told = committed.results is not None
            self._is_asserted = True
            self._note_look(began_s, turns, is_news=True)
            _satisfy(look_waiters)
            self._tell(committed, operations, asks, began_s)
        except Exception as error:  # broad: the callers get it, whatever it is
            self._upkeep_s = began_s + UPKEEP_AGAIN_S
            fail(operations, asks, error)
            _satisfy(look_waiters, error)
        except BaseException:
            fail(operations, asks, self._stopped())
            _satisfy(look_waiters, self._stopped())
            raise
        finally:
            self._digest(draft if is_told else None)

    def _assert_settings(self) -> list[PendingOperation]:
        """What the queue was said to be like when it was opened, if the log says otherwise."""
        follower = self.follower
        # Once only: later on others may have changed them.
        if self._is_asserted or follower.head is None:
            return []
        is_right = follower.replica.settings == follower.settings
        return [] if is_right else [unheard(configure(follower.settings))]

    def _tell(
        self,
        committed: Committed,
        operations: list[PendingOperation],
        asks: list[WaitingReceive],
        built_s: float,
    ) -> None:
        if committed.results is None:
            self._tell_without_results(operations, asks)
            return
        dead = committed.applied.dead if committed.applied is not None else ()
        for operation, result in zip(operations, committed.results, strict=False):
            if not operation.done.done():
                operation.done.set_result(Fulfilled(result, dead))
        empty = []
        for ask, result in zip(asks, committed.results[len(operations) :], strict=True):
            taken = result.taken if isinstance(result, Takings) else ()
            if not taken:
                empty.append(ask)
            elif not answer(ask, ReceiveAnswer(taken, built_s)):
                self.hand_back(taken)
        self._receives.return_empty(empty)

    def _tell_without_results(
        self, operations: list[PendingOperation], asks: list[WaitingReceive]
    ) -> None:
        """It is committed, and only a send needs to know no more than that."""
        replica = self.follower.replica
        unknown = []
        for operation in operations:
            if isinstance(operation.op, SendOperation) and operation.op.born_s >= replica.swept_s:
                if not operation.done.done():
                    operation.done.set_result(Fulfilled(SendResult(is_accepted=True)))
            else:
                unknown.append(operation)
        prefix = f"{self.follower.writer}.{self._count}."
        lost = [each for each in replica.queue.leases if each.startswith(prefix)]
        if lost:
            self.submit(SettleOperation(hold(lost), (UNCOUNTED,) * len(lost)))
        detail = "a commit went through, but its results were lost in a long pause; try again"
        fail(unknown, asks, ConnectionFailed(self.follower.keys.head, detail))

    async def _look(self) -> None:
        look_waiters, self._look_waiters = self._look_waiters, []
        began_s, turns = self._clock.now_s(), self._receives.turns
        try:
            is_news = await self._drive(refresh(self.follower))
            self._note_look(began_s, turns, is_news=is_news)
            _satisfy(look_waiters)
        except Exception as error:  # broad: the callers get it, whatever it is
            _satisfy(look_waiters, error)
            self._receives.fail(error)
            self._upkeep_s = began_s + UPKEEP_AGAIN_S
        finally:
            self._digest(None)

    def _note_look(self, began_s: float, turns: int, *, is_news: bool) -> None:
        self._looked_s = began_s
        self._receives.note_look(began_s, turns, is_news=is_news)

    def _digest(self, told: Draft | None) -> None:
        """Take note of what was applied. Commits of ours that were given up and came through after
        all have leased messages that are not delivered.
        """
        news = self.follower.take_applied()
        for applied in news:
            entry = applied.entry
            if entry.writer == self.follower.writer and (told is None or entry.count != told.count):
                for result in applied.results:
                    if isinstance(result, Takings):
                        self.hand_back(result.taken)
        self._on_applied(news)
        if self.follower.litter and (self._cleaning is None or self._cleaning.done()):
            self._cleaning = asyncio.create_task(self._clean(), name="cleaning")
        if self._count and self._sweep_s == inf:
            self._sweep_s = self._clock.now_s() + SWEEP_S * (0.5 + self._clock.chance())

    async def _clean(self) -> None:
        try:
            await self._drive(clean(self.follower))
        except GatewayError:
            # The next sweep finds it.
            return

    async def _sweep(self, now_s: float) -> None:
        self._sweep_s = now_s + SWEEP_S * (0.5 + self._clock.chance())
        steps = sweep(
            self.follower,
            self._time.earliest_s() - SWEEP_S,
            draft_count=self._next_count,
            time=self._time,
            new_nonce=self._around.new_id,
        )
        try:
            await self._drive(steps)
        except GatewayError:
            # Litter can wait; the next sweep is not far.
            return
        finally:
            self._digest(None)

    def _next_count(self) -> int:
        self._count += 1
        return self._count

    async def _drive(self, steps: Steps[_T]) -> _T:
        return await drive(steps, PacedStore(self._around.store, self._clock))

    # Time.

    def _late_s(self) -> float:
        """For how long upkeep has been due; negative when it is not."""
        return self._time.earliest_s() - self._upkeep_due_s()

    def _upkeep_due_s(self) -> float:
        """When, by the server's time, something is due without a call for it."""
        replica = self.follower.replica
        due_s = min((claim.until_s for claim in replica.dead.values()), default=inf)
        if replica.settings.max_receive_count is not None and replica.queue.leases:
            due_s = min(due_s, replica.next_due_s())
        return due_s

    def _arm(self) -> None:
        self._disarm()
        now_s = self._clock.now_s()
        due_s = self.follower.replica.next_due_s() if len(self._receives) else inf
        delay_s = min(
            self._receives.next_look_s() - now_s,
            self._receives.next_deadline_s() - now_s,
            (due_s - self._time.earliest_s()) * (1 + 2 * DRIFT) + _LATE_S,
            max(_LATE_S - self._late_s() * (1 + 2 * DRIFT), self._upkeep_s - now_s),
        )
        if delay_s < inf:
            self._timer = self._clock.call_later(max(delay_s, _LATE_S), self._wake.set)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _satisfy(look_waiters: Iterable[Future[None]], error: Exception | None = None) -> None:
    for looked in look_waiters:
        if looked.done():
            continue
        if error is None:
            looked.set_result(None)
        else:
            looked.set_exception(error)


# Pending operations: those that wait for a commit, and the futures of their callers.


@attrs.frozen
class Fulfilled:
    """What came of an operation, and which messages its entry was the end of."""

    result: Result
    dead: tuple[int, ...] = ()


@attrs.frozen(eq=False)
class PendingOperation:
    """An operation that waits for a commit."""

    op: Op
    done: Future[Fulfilled]


def granted_s(lease_s: float) -> float:
    """A lease by the store's clock that is not over before a slow clock of ours has counted it."""
    return lease_s * (1 + DRIFT)


def brings(op: Op) -> int:
    """How many messages an operation makes available at once."""
    if isinstance(op, SendOperation):
        return sum(lot.count for lot in op.lots if lot.delay_s <= 0)
    if isinstance(op, SettleOperation):
        return sum(1 for delay_s in op.delays_s if delay_s is not None and delay_s <= 0)
    return 0


def fail(
    operations: Iterable[PendingOperation], asks: Iterable[WaitingReceive], error: Exception
) -> None:
    """Fail all of them with what prevented it."""
    for operation in operations:
        if not operation.done.done():
            operation.done.set_exception(error)
    for ask in asks:
        if not ask.answer.done():
            ask.answer.set_exception(error)


def unheard(op: Op) -> PendingOperation:
    """An operation without a caller that awaits its outcome."""
    done: Future[Fulfilled] = asyncio.get_running_loop().create_future()
    done.add_done_callback(look_at)
    return PendingOperation(op, done)


# Pacing: the pauses that steps cannot make.

_FIRST_S = 0.05
_MAX_S = 2.0


class PacedStore:
    """A store for one protocol: pauses, longer each time, before it tells of a request that was
    not answered or not decided, so that the next one is not made at once.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pause_s = _FIRST_S

    async def perform(self, request: Request) -> Reply:
        reply = await self._store.perform(request)
        if isinstance(reply, WriteConflict):
            await self._clock.sleep(2 * _FIRST_S * self._clock.chance())
        elif isinstance(reply, Unknown):
            await self._clock.sleep(self._pause_s * (0.5 + self._clock.chance()))
            self._pause_s = min(2 * self._pause_s, _MAX_S)
        return reply
