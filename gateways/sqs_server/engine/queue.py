"""A queue: its state, its waiting receivers, and its timers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Protocol

import attrs
import msgspec

from pump.clock import Clock, Timer

from ..errors import SqsError, over_limit
from ..model import QueueId, SqsQueueSettings
from .record import (
    IN_FLIGHT,
    LIMBO,
    VISIBLE,
    Deletion,
    FileIdentity,
    Receipt,
    ReceiptProblem,
    SqsRecord,
    TakenBatch,
    read_receipt,
    receipt_name,
)
from .state import SqsQueueState

MAX_IN_FLIGHT_COUNT = 120_000
"""SQS refuses a receive from a standard queue beyond this, and a FIFO queue gives out no more."""

# What falls due within this is due now, so that sums of floats never make a test, or a timer,
# miss the moment by a rounding error. Far below any visibility that makes sense.
TICK_S = 1e-6


class UpkeepPort(Protocol):
    """Writes down what a queue noticed by itself."""

    def dead_letter(self, queue: Queue, records: Sequence[SqsRecord]) -> None:
        """Messages in limbo had their last delivery."""

    def expire(self, queue: Queue, records: Sequence[SqsRecord]) -> None:
        """The retention of messages, in limbo now, is over."""

    def dead_after(self, queue: Queue) -> float:
        """How many deliveries a message may have before it is dead."""


class ReceiveTerms(msgspec.Struct, frozen=True):
    """What a receiver wants."""

    max_count: int
    visibility_s: float
    attempt_id: str | None = None


@attrs.define(eq=False)
class _WaitingReceive:
    ask: ReceiveTerms
    served: asyncio.Future[TakenBatch | None]


class Queue:
    """Serves waiting receivers, first come first served, when there is something; never polls.

    Messages are handed to the receiver that has waited longest the moment they become available,
    so a later receive cannot be faster.
    """

    def __init__(
        self,
        number: int,
        settings: SqsQueueSettings,
        clock: Clock,
        identity: FileIdentity,
        upkeep: UpkeepPort,
    ) -> None:
        self.number = number
        self.state = SqsQueueState(settings)
        self.receipts = ReceiptReader(number, identity, self.state)
        self.is_leaving = False
        """Whether its deletion is being written: nothing may be moved here any more."""
        self.is_gone = False
        """Whether it is deleted; what arrives late is dropped."""
        self._clock = clock
        self._upkeep = upkeep
        self._waiters: deque[_WaitingReceive] = deque()
        self._is_closed = False
        self._is_notifying = False
        self._must_notify_again = False
        self._visibility_alarm = _Alarm(clock, self.notify)
        self._retention_alarm = _Alarm(clock, self._retire)

    @property
    def settings(self) -> SqsQueueSettings:
        """What it is set to."""
        return self.state.settings

    @property
    def address(self) -> QueueId:
        """What it is called."""
        return self.state.settings.address

    @property
    def waiting_count(self) -> int:
        """How many receivers wait."""
        return len(self._waiters)

    def serve(self, ask: ReceiveTerms) -> tuple[TakenBatch | None, bool]:
        """Take what is asked for, and say whether dead messages were found on the way."""
        now_s = self.promote()
        state = self.state
        if ask.attempt_id is not None and state.is_fifo:
            before = state.attempts.find(ask.attempt_id, now_s)
            if before is not None:
                return state.repeat(before, visibility_s=ask.visibility_s, now_s=now_s), False
        allowed = MAX_IN_FLIGHT_COUNT - state.in_flight_count
        if allowed <= 0:
            if state.is_fifo:
                return None, False
            raise over_limit(f"{MAX_IN_FLIGHT_COUNT} messages are in flight; delete some.")
        return self._take(ask, min(ask.max_count, allowed), now_s)

    def _take(
        self, ask: ReceiveTerms, max_count: int, now_s: float
    ) -> tuple[TakenBatch | None, bool]:
        state = self.state
        taken, dead = state.take(
            max_count,
            visibility_s=ask.visibility_s,
            now_s=now_s,
            time_s=self._clock.time_s(),
            limit=self._upkeep.dead_after(self),
        )
        if dead:
            self._upkeep.dead_letter(self, dead)
        if taken is not None:
            if ask.attempt_id is not None and state.is_fifo:
                state.attempts.remember(ask.attempt_id, taken, now_s)
            if ask.visibility_s <= 0:
                state.promote(now_s)
        return taken, bool(dead)

    async def wait(self, ask: ReceiveTerms, wait_s: float) -> TakenBatch | None:
        """Wait for messages; None when `wait_s` have passed without any.

        Cancelled, nothing is hidden or counted for this receiver.
        """
        served: asyncio.Future[TakenBatch | None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(wait_s, lambda: _answer(served, None))
        waiter = _WaitingReceive(ask, served)
        self._waiters.append(waiter)
        self._arm()
        try:
            return await served
        except asyncio.CancelledError:
            if served.done() and not served.cancelled() and served.exception() is None:
                self.revoke(served.result())
            raise
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def revoke(self, taken: TakenBatch | None) -> None:
        """Make what was not delivered available again, uncounted."""
        if taken is not None and not taken.is_repeated:
            self.state.revoke(taken)
            self.notify()

    def notify(self) -> None:
        """Serve waiting receivers: something has changed, or time has passed."""
        # A store that writes at once finishes a move, and notifies, in the middle of a serve.
        if self._is_notifying:
            self._must_notify_again = True
            return
        if self._waiters:
            self._is_notifying = True
            try:
                self.promote()
                self._serve_waiters()
            finally:
                self._is_notifying = False
        self._arm()

    def _serve_waiters(self) -> None:
        while self._waiters and self.state.order.has_candidates():
            self._must_notify_again = False
            waiter = self._waiters[0]
            if waiter.served.done() or self._serve_waiter(waiter):
                self._waiters.popleft()
            elif not self._must_notify_again:
                return

    def _serve_waiter(self, waiter: _WaitingReceive) -> bool:
        try:
            taken, _ = self.serve(waiter.ask)
        except SqsError as error:
            waiter.served.set_exception(error)
            return True
        if taken is None:
            return False
        waiter.served.set_result(taken)
        return True

    def promote(self) -> float:
        """Let the queue catch up with the clock, and return the time."""
        now_s = self._clock.now_s()
        state = self.state
        if state.timers.may_be_due(now_s + TICK_S):
            state.promote(now_s + TICK_S)
        time_s = self._clock.time_s() + TICK_S
        if state.expiry_hint_s <= time_s and not self._is_closed:
            records = state.expired(time_s)
            if records:
                self._upkeep.expire(self, records)
        return now_s

    def close(self) -> None:
        """Return every waiting receive empty and disarm the timers, for good."""
        self._is_closed = True
        while self._waiters:
            _answer(self._waiters.popleft().served, None)
        self._visibility_alarm.disarm()
        self._retention_alarm.disarm()

    def _retire(self) -> None:
        self.promote()
        self.notify()

    def _arm(self) -> None:
        if self._is_closed:
            return
        hint_s = self.state.expiry_hint_s
        if hint_s < self._retention_alarm.due_s:
            self._retention_alarm.arm(hint_s, hint_s - self._clock.time_s())
        if self._waiters:
            due_s = self.state.timers.next_due_s()
            if due_s < self._visibility_alarm.due_s:
                self._visibility_alarm.arm(due_s, due_s - self._clock.now_s())


class _Alarm:
    """One timer, set to the earliest moment it was asked for."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self.due_s = inf
        self._clock = clock
        self._on_ring = ring
        self._timer: Timer | None = None

    def arm(self, due_s: float, delay_s: float) -> None:
        self.disarm()
        self.due_s = due_s
        self._timer = self._clock.call_later(max(0.0, delay_s - TICK_S / 2), self._ring)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.due_s = inf

    def _ring(self) -> None:
        self._timer = None
        self.due_s = inf
        self._on_ring()


def _answer(served: asyncio.Future[TakenBatch | None], taken: TakenBatch | None) -> None:
    if not served.done():
        served.set_result(taken)


# Receipts: which message one stands for, and whether it still counts.
#
# Standard queues are lenient, as AWS is: any receipt of a message deletes it, or changes its
# visibility, late or not and even if another consumer has it. FIFO queues honour only the newest
# receipt, and only while its message is in flight.

MAX_IN_FLIGHT_S = 43_200
"""SQS lets a message be in flight for twelve hours in total."""


class ReceiptReader:
    """Reads the receipts of one queue."""

    def __init__(self, number: int, identity: FileIdentity, state: SqsQueueState) -> None:
        self._name = receipt_name(number)
        self._identity = identity
        self._state = state

    def to_delete(self, receipts: Iterable[str]) -> Deletion:
        """Find the messages, and send them to limbo."""
        deletion = Deletion()
        records, problems, is_fifo = deletion.records, deletion.problems, self._state.is_fifo
        for text in receipts:
            found = self._find(text)
            if not isinstance(found, tuple):
                problems.append(found)
            elif is_fifo and not self._is_current(*found):
                problems.append(ReceiptProblem.EXPIRED)
            else:
                problems.append(None)
                records.append(found[0])
        self._state.send_to_limbo(records)
        return deletion

    def change(
        self, changes: Sequence[tuple[str, int]], *, now_s: float
    ) -> tuple[list[SqsRecord], list[ReceiptProblem | None]]:
        """Find the messages, hide each for its time from now on, and return them."""
        valid: list[tuple[SqsRecord, float]] = []
        problems: list[ReceiptProblem | None] = []
        for text, visibility_s in changes:
            found = self._for_change(text, visibility_s, now_s)
            if isinstance(found, SqsRecord):
                valid.append((found, visibility_s))
                problems.append(None)
            else:
                problems.append(found)
        self._state.change(valid, now_s=now_s)
        return [record for record, _ in valid], problems

    def _for_change(self, text: str, visibility_s: int, now_s: float) -> SqsRecord | ReceiptProblem:
        found = self._find(text)
        if isinstance(found, ReceiptProblem):
            return found
        record, receipt = found
        if record.phase == LIMBO:
            return ReceiptProblem.GONE
        if self._state.is_fifo:
            if not self._is_current(record, receipt):
                return ReceiptProblem.EXPIRED
        elif record.phase not in (IN_FLIGHT, VISIBLE):
            return ReceiptProblem.NOT_IN_FLIGHT
        taken_s = now_s if record.hold is None else record.hold.taken_s
        if now_s + visibility_s - taken_s > MAX_IN_FLIGHT_S:
            return ReceiptProblem.BEYOND_LIMIT
        return record

    def _find(self, text: str) -> tuple[SqsRecord, Receipt] | ReceiptProblem:
        receipt = read_receipt(text)
        if receipt is None:
            return ReceiptProblem.MALFORMED
        if receipt[1] != self._name:
            return ReceiptProblem.OTHER_QUEUE
        record = self._state.records.get(receipt[2])
        return ReceiptProblem.GONE if record is None else (record, receipt)

    def _is_current(self, record: SqsRecord, receipt: Receipt) -> bool:
        # In limbo, with a hold: its delete is being written, and may be asked for once more.
        is_held = record.phase == IN_FLIGHT or (record.phase == LIMBO and record.hold is not None)
        boot, _, _, receive_count = receipt
        if not is_held or receive_count != record.receive_count or record.hold is None:
            return False
        return boot == (record.hold.holder or self._identity.boot)
