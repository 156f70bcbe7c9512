"""The replica: what a log says, as a state machine that every process runs for itself.

Nothing in `apply` is random, local or read from a clock, so two replicas that applied the same
entries, from the first on or from a snapshot, give the same results ever after. Where the engine's
state keeps something else apart (the order of equal expiries, offers that proved void), nothing
that is returned depends on it.

| a message is | until                                                                     |
|--------------|---------------------------------------------------------------------------|
| ready        | `Take`                                                                    |
| delayed      | an entry whose `at_s` is past its due time                                |
| leased       | `SettleOperation`, or an entry whose `at_s` is past the lease's end       |
| dead         | `DeadLettered`; its `Claim` says whose task that is, `Adopt` passes it on |
| gone         | its segment goes with the last message in it                              |

A locked session is one until `Release`, or an entry whose `at_s` is past its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import attrs

from pump.message import Message
from pump.outcome import ABANDON, ACK, Action, Defer
from pump.ports import QueueStats

from ..._engine.record import (
    DELAYED,
    LEASED,
    READY,
    EngineSettings,
    LeaseBatch,
    LockedSession,
    Record,
    Return,
)
from ..._engine.state import QueueState
from .entries import (
    UNCOUNTED,
    Accept,
    Adopt,
    Claim,
    CommitEntry,
    Configure,
    DeadLettered,
    ExtendOperation,
    KeptLock,
    Lot,
    Op,
    PurgeOperation,
    Release,
    Renew,
    SendOperation,
    SessionOp,
    SettleOperation,
    Sweep,
    Take,
    TakeInSession,
)

MOVE_S = 60.0
"""How long the writer whose entry found a message dead has to move it before another may.

This and the next are part of the log's form: with other numbers replicas would disagree, so they
change with `codec.VERSION` only."""
MAX_WRITERS = 256
"""Of so many writers, the last ones, it is known what was their last commit."""


class Stub(Message, frozen=True, kw_only=True, gc=False):
    """A message of which only its group counts here; the rest waits in a segment."""

    segment: str
    place: int


class Replica:
    """One queue as its log says it is. `apply` is the only thing that changes it."""

    def __init__(self, settings: EngineSettings) -> None:
        self.queue = QueueState(settings, tokens=self._token)
        self.number = 0
        """Of the last entry."""
        self.at_s = 0.0
        """Its time; never goes back."""
        self.next_number = 1
        """Of the next message."""
        self.swept_s = 0.0
        self.segments: dict[str, int] = {}
        """How many messages are left in each."""
        self.writers: dict[str, int] = {}
        """The count of each writer's last commit, the latest writer last."""
        self.dead: dict[int, Claim] = {}
        self._margin_s = 0.0
        self._op = ""
        self._token_count = 0
        self._touched: set[str] = set()
        self._died: list[Record] = []

    @property
    def settings(self) -> EngineSettings:
        """What the queue is like, by the log."""
        return self.queue.settings

    def apply(self, entry: CommitEntry) -> Applied:
        """Do what an entry says and return what came of it."""
        if entry.number != self.number + 1:
            raise ValueError(f"entry {entry.number} does not follow {self.number}")
        self.number, self.at_s = entry.number, max(self.at_s, entry.at_s)
        self._margin_s = entry.margin_s
        self._touched, self._died = set(), []
        lapse = self.queue.promote(self.at_s)
        if lapse is not None:
            self._died += lapse.dead
        results = []
        for place, op in enumerate(entry.ops):
            self._op, self._token_count = f"{entry.commit}.{place}", 0
            results.append(self._apply(op, entry.writer))
        self._note_writer(entry)
        dead = self._claim_dead(entry.writer)
        return Applied(entry=entry, results=tuple(results), emptied=self._take_emptied(), dead=dead)

    # Looking, as it would be if an entry were applied now.

    def next_due_s(self) -> float:
        """When time alone will change something, by the server's time; infinity for never."""
        return self.queue.timers.next_due_s()

    def available(self, now_s: float) -> Available:
        """At most so much could be taken now."""
        queue = self.queue
        if self.next_due_s() <= now_s:
            count = len(queue.records)
            return Available(count, count)
        candidates = queue.order.candidate_count()
        return Available(queue.stats(now_s).visible if candidates else 0, candidates)

    def stats(self, now_s: float) -> QueueStats:
        """Count what is here."""
        now_s = max(now_s, self.at_s)
        stats = self.queue.stats(now_s)
        if self.next_due_s() > now_s:
            return stats
        phases = [self._phase_at(record, now_s) for record in self.queue.records.values()]
        visible, delayed = phases.count(READY), phases.count(DELAYED)
        return attrs.evolve(
            stats, visible=visible, delayed=delayed, in_flight=len(phases) - visible - delayed
        )

    def peek(self, now_s: float, max_count: int) -> list[Stub]:
        """The next available messages in the queue's order."""
        now_s = max(now_s, self.at_s)
        records: Iterable[Record] = self.queue.records.values()
        if self.settings.is_lifo:
            records = reversed(self.queue.records.values())
        seen: list[Stub] = []
        for record in records:
            if len(seen) == max_count:
                break
            if self._phase_at(record, now_s) == READY:
                seen.append(stub(record))
        return seen

    def _phase_at(self, record: Record, now_s: float) -> int:
        is_over = (record.phase == DELAYED and record.due_s <= now_s) or (
            record.phase == LEASED
            and record.batch is not None
            and record.batch.expires_s <= now_s
            and record.attempt < (self.settings.max_receive_count or record.attempt + 1)
        )
        return READY if is_over else record.phase

    def claimed_by(self, writer: str) -> list[int]:
        """The dead that are this writer's to move."""
        return [number for number, claim in self.dead.items() if claim.writer == writer]

    # Operations.

    def _apply(self, op: Op, writer: str) -> Result:
        match op:
            case SendOperation():
                return self._send(op)
            case Take(max_count, lease_s):
                return self._take(max_count, lease_s)
            case SettleOperation():
                return self._settle(op)
            case ExtendOperation(held, lease_s):
                until_s = self.at_s + self._margin_s + lease_s
                extension = self.queue.extend(held.receipts(), until_s=until_s)
                return Refusals(tuple(extension.refused))
            case PurgeOperation():
                return self._purge()
            case Accept() | TakeInSession() | Renew() | Release():
                return self._apply_to_session(op)
            case Adopt():
                self._adopt(writer)
            case DeadLettered(numbers):
                self._remove_moved(numbers)
            case Configure():
                self._configure(op)
            case Sweep(before_s):
                self.swept_s = max(self.swept_s, before_s)
            case _:
                assert_never(op)
        return Done()

    def _send(self, op: SendOperation) -> SendResult:
        if op.born_s < self.swept_s:
            return SendResult(is_accepted=False)
        self._touched.add(op.segment)
        place = 0
        window = self.queue.deduplication
        if window.window_s > 0:
            window.window_s = self.settings.deduplication_window_s + self._margin_s
        for lot in op.lots:
            arrival = self.queue.prepare(
                _stubs(op.segment, place, lot),
                first_seq=self.next_number,
                now_s=self.at_s,
                delay_s=self._granted_s(lot.delay_s),
            )
            self.queue.add(arrival.records)
            count = len(arrival.records)
            self.next_number += count
            self.segments[op.segment] = self.segments.get(op.segment, 0) + count
            place += lot.count
        return SendResult(is_accepted=True)

    def _take(self, max_count: int, lease_s: float) -> Takings:
        batch = self.queue.take(max_count, lease_s=lease_s + self._margin_s, now_s=self.at_s)
        return self._takings(batch)

    def _apply_to_session(self, op: SessionOp) -> Result:
        result = apply_session(self.queue, op, at_s=self.at_s, margin_s=self._margin_s)
        if result is None or isinstance(result, LeaseBatch):
            return self._takings(result)
        return result

    def _takings(self, batch: LeaseBatch | None) -> Takings:
        if batch is None:
            return Takings(())
        taken = []
        for record in batch.members.values():
            kept = stub(record)
            taken.append(
                TakenMessage(
                    record.seq,
                    kept.segment,
                    kept.place,
                    record.attempt,
                    record.receipt,
                    batch.expires_s,
                )
            )
        return Takings(tuple(taken))

    def _settle(self, op: SettleOperation) -> Refusals:
        receipts = op.held.receipts()
        actions: list[Action] = [self._action(delay_s) for delay_s in op.delays_s]
        detached = self.queue.detach(receipts, actions or [ACK] * len(receipts))
        self._finish(detached.acked)
        self._died += self.queue.finish_returned(detached.returned, now_s=self.at_s)
        return Refusals(tuple(detached.refused))

    def _action(self, delay_s: float | None) -> Action:
        if delay_s is None:
            return ACK
        return ABANDON if delay_s == UNCOUNTED else Defer(self._granted_s(delay_s))

    def _granted_s(self, delay_s: float) -> float:
        """A delay as counted from `at_s`, so that it is over by every clock when it is by ours."""
        return delay_s + self._margin_s if delay_s > 0 else 0.0

    def _purge(self) -> PurgeResult:
        self._touched.update(self.segments)
        self.segments.clear()
        self.dead.clear()
        self._died.clear()
        return PurgeResult(self.queue.clear())

    def _remove_moved(self, numbers: Iterable[int]) -> None:
        self._finish([self.queue.records[number] for number in numbers if number in self.dead])

    def _configure(self, op: Configure) -> None:
        name = self.settings.name
        self.queue.reconfigure(settings_of(op, name))
        # Under the new settings a message may not be dead at all, nor one whose last lease this
        # very entry found over.
        waiting = [self.queue.records[number] for number in self.dead]
        self._died = self.queue.finish_returned(
            [Return(record, 0.0, True) for record in (*waiting, *self._died)], now_s=self.at_s
        )
        self.dead.clear()

    def _adopt(self, writer: str) -> None:
        until_s = self.at_s + self._margin_s + MOVE_S
        for number, claim in self.dead.items():
            if claim.until_s <= self.at_s:
                self.dead[number] = Claim(writer, until_s)

    # What an entry leaves behind.

    def _finish(self, records: list[Record]) -> None:
        self.queue.finish_acked(records)
        for record in records:
            segment = stub(record).segment
            self.segments[segment] -= 1
            self._touched.add(segment)
            self.dead.pop(record.seq, None)

    def _take_emptied(self) -> tuple[str, ...]:
        emptied = sorted(each for each in self._touched if not self.segments.get(each))
        for segment in emptied:
            self.segments.pop(segment, None)
        return tuple(emptied)

    def _claim_dead(self, writer: str) -> tuple[int, ...]:
        claim = Claim(writer, self.at_s + self._margin_s + MOVE_S)
        numbers = sorted(record.seq for record in self._died)
        for number in numbers:
            self.dead[number] = claim
        return tuple(numbers)

    def _note_writer(self, entry: CommitEntry) -> None:
        self.writers.pop(entry.writer, None)
        self.writers[entry.writer] = entry.count
        if len(self.writers) > MAX_WRITERS:
            del self.writers[next(iter(self.writers))]

    def _token(self) -> str:
        """Unique, and the same in every replica: which tokens a replica did not need must not
        change the next one, so they are counted by operation.
        """
        self._token_count += 1
        return self._op if self._token_count == 1 else f"{self._op}.{self._token_count}"


def stub(record: Record) -> Stub:
    """What a record of a replica holds."""
    kept = record.message
    assert isinstance(kept, Stub)
    return kept


def settings_of(op: Configure, name: str) -> EngineSettings:
    """An operation's settings, in the engine's words."""
    return EngineSettings(
        name=name,
        is_lifo=op.is_lifo,
        is_strict=op.is_strict,
        max_receive_count=op.max_receive_count,
        dead_letter_queue=op.dead_letter_queue,
        deduplication_window_s=op.deduplication_window_s,
    )


def configure(settings: EngineSettings) -> Configure:
    """The operation that makes a queue like this."""
    return Configure(
        settings.is_lifo,
        settings.is_strict,
        settings.max_receive_count,
        settings.dead_letter_queue,
        settings.deduplication_window_s,
    )


_NO_HEADERS: dict[str, str] = {}


def make_stub(segment: str, place: int, group: str | None, key: str | None = None) -> Stub:
    """A message whose body is elsewhere."""
    return Stub(
        body=b"",
        id="",
        group=group,
        deduplication_id=key,
        headers=_NO_HEADERS,
        segment=segment,
        place=place,
    )


def _stubs(segment: str, first: int, lot: Lot) -> Iterable[Stub]:
    groups = lot.groups or (None,) * lot.count
    keys = lot.keys or (None,) * lot.count
    for place, (group, key) in enumerate(zip(groups, keys, strict=True), first):
        yield make_stub(segment, place, group, key)


# Sessions in a replica: what an operation on them does, the same in every replica.


@attrs.frozen
class SessionGrant:
    """A session is held until then, by the server's time."""

    token: str
    session: str
    expires_s: float


@attrs.frozen
class NotGranted:
    """The session was not free, or its lock has ended."""


@attrs.frozen
class Released:
    """The session is free, or its lock had ended before."""


SessionResult = SessionGrant | NotGranted | Released


def apply_session(
    queue: QueueState, op: SessionOp, *, at_s: float, margin_s: float
) -> SessionResult | LeaseBatch | None:
    """Do what an operation says: for a receive, what it leased, None for nothing."""
    if isinstance(op, Accept):
        until_s = at_s + margin_s + op.lease_s
        accepted = queue.sessions.accept(op.session, until_s=until_s)
        return NotGranted() if accepted is None else _granted(accepted)
    lock = queue.sessions.find(op.token)
    if lock is None:
        return Released() if isinstance(op, Release) else NotGranted()
    match op:
        case TakeInSession(_, max_count):
            return queue.take_in_session(lock, max_count)
        case Renew(_, lease_s):
            queue.sessions.renew(lock, until_s=at_s + margin_s + lease_s)
            return _granted(lock)
        case Release():
            receipts = lock.receipts()
            detached = queue.detach(receipts, [ABANDON] * len(receipts))
            queue.finish_returned(detached.returned, now_s=at_s)
            queue.release(lock)
            return Released()
        case _:
            assert_never(op)


def keep_locks(queue: QueueState) -> tuple[KeptLock, ...]:
    """Every lock, for a snapshot."""
    kept = (KeptLock(lock.id, lock.group, lock.expires_s) for lock in queue.sessions)
    return tuple(sorted(kept, key=lambda each: each.token))


def restore_locks(kept: tuple[KeptLock, ...]) -> list[LockedSession]:
    """Every lock of a snapshot."""
    return [LockedSession(each.token, each.session, "", each.expires_s) for each in kept]


def _granted(lock: LockedSession) -> SessionGrant:
    return SessionGrant(lock.id, lock.group, lock.expires_s)


# Results: what came of an entry, as plain values.


@attrs.frozen
class TakenMessage:
    """A message under a new lease."""

    number: int
    segment: str
    place: int
    attempt: int
    receipt: str
    expires_s: float
    """By the server's time."""


@attrs.frozen
class SendResult:
    """A send was accepted, duplicates included; or it came too late for its segment."""

    is_accepted: bool


@attrs.frozen
class Takings:
    """What a receive got."""

    taken: tuple[TakenMessage, ...]


@attrs.frozen
class Refusals:
    """The positions of those whose receipt was not valid."""

    positions: tuple[int, ...]


@attrs.frozen
class PurgeResult:
    """How many messages there were."""

    count: int


@attrs.frozen
class Done:
    """It cannot fail, and there is nothing to tell."""


Result = SendResult | Takings | Refusals | PurgeResult | Done | SessionResult


@attrs.frozen(kw_only=True)
class Applied:
    """What came of an entry."""

    entry: CommitEntry
    results: tuple[Result, ...]
    """Of each operation."""
    emptied: tuple[str, ...] = ()
    """Segments with nothing left in them: for the entry's writer to remove."""
    dead: tuple[int, ...] = ()
    """Messages that had their last delivery: for the entry's writer to move."""


@attrs.frozen
class Available:
    """Bounds of what can be taken."""

    messages: int
    receives: int
    """How many receives could get something: each group serves one at a time."""
