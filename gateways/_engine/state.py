"""One queue as a pure state machine: no await, no clock, no log; `now_s` is an argument.

A message is READY, DELAYED, LEASED or in LIMBO; `record.RecordPhase` has the transitions,
`delivery_order.py` the order. Settling takes two steps so that a journal can be written in between:
`detach` takes the lease away and leaves the message in LIMBO, then `finish_…` or, when the write
failed, `reattach`. The same holds for a receive: `take`, and `revoke` when its answer was not
delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import inf

from pump.message import Message, new_id
from pump.outcome import Ack, Action
from pump.ports import QueueStats

from .delivery_order import DeliveryOrder
from .record import (
    DELAYED,
    LEASED,
    LIMBO,
    READY,
    Arrival,
    Detached,
    EngineSettings,
    Extension,
    Lapse,
    LeaseBatch,
    LockedSession,
    Record,
    Return,
)


class QueueState:
    """Everything one queue knows. The caller promotes before it takes, settles or looks."""

    def __init__(self, settings: EngineSettings, *, tokens: Callable[[], str] = new_id) -> None:
        self.settings = settings
        self.records: dict[int, Record] = {}
        """Every message, oldest first."""
        self.leases: dict[str, Record] = {}
        """Every message under a lease, by receipt."""
        self.timers = TimerHeap()
        self.deduplication = DeduplicationWindow(settings.deduplication_window_s)
        self.order = DeliveryOrder(settings)
        self.sessions = LockedSessions(self.order, self.timers, tokens)
        self._tokens = tokens
        self._delayed_count = 0
        self._limbo_count = 0

    # Sending.

    def prepare(
        self, messages: Iterable[Message], *, first_seq: int, now_s: float, delay_s: float = 0.0
    ) -> Arrival:
        """Make records for the messages that are not duplicates; `add` stores them."""
        arrival = Arrival()
        records = arrival.records
        phase, due_s = (DELAYED, now_s + delay_s) if delay_s > 0 else (READY, 0.0)
        seq = first_seq
        for message in messages:
            key = message.deduplication_id
            if key is not None and self.deduplication.window_s > 0:
                if not self.deduplication.admit(key, now_s):
                    continue
                arrival.keys.append(key)
            records.append(Record(seq, message, now_s, None, 0, phase, due_s))
            seq += 1
        if arrival.keys:
            arrival.forgotten = self.deduplication.take_forgotten()
        return arrival

    def add(self, records: Iterable[Record]) -> None:
        """Store records, made by `prepare` and in the order of their numbers."""
        known, append = self.records, self.order.append
        for record in records:
            known[record.seq] = record
            if record.phase == DELAYED:
                self._delay(record)
            append(record)

    # Receiving.

    def take(
        self,
        max_count: int,
        *,
        lease_s: float,
        now_s: float,
        owner: str = "",
        request: int | None = None,
    ) -> LeaseBatch | None:
        """Lease up to `max_count` of the messages that come next; None when there is none."""
        order = self.order
        if max_count < 1 or not order.has_candidates():
            return None
        batch = LeaseBatch(self._tokens(), owner, now_s + lease_s, request)
        records = order.pop_fresh(max_count) or _pop_each(order, batch, max_count)
        return self._lease(batch, records) if records else None

    def take_in_session(
        self, lock: LockedSession, max_count: int, *, request: int | None = None
    ) -> LeaseBatch | None:
        """Lease what comes next of a session, until its lock ends; None when there is nothing."""
        records = self.order.take_locked(lock.ordering_group, max_count)
        if not records:
            return None
        batch = LeaseBatch(self._tokens(), lock.owner, lock.expires_s, request)
        lock.add(batch)
        return self._lease(batch, records)

    def _lease(self, batch: LeaseBatch, records: Iterable[Record]) -> LeaseBatch:
        members, leases, prefix = batch.members, self.leases, f"{batch.id}."
        for record in records:
            seq = record.seq
            record.attempt += 1
            record.phase = LEASED
            record.batch = batch
            record.receipt = receipt = f"{prefix}{seq}"
            leases[receipt] = record
            members[seq] = record
        self.timers.add(batch.expires_s, batch)
        return batch

    def revoke(self, batch: LeaseBatch, *, now_s: float) -> None:
        """Undo a `take` that was not delivered: nothing is hidden, nothing counted."""
        for record in list(batch.members.values()):
            del self.leases[record.receipt]
            self._give_back(Return(record, 0.0, False), now_s, [])
        batch.members.clear()
        self.timers.note_stale()

    # Settling.

    def detach(self, receipts: Iterable[str], actions: Iterable[Action]) -> Detached:
        """Take the leases away; what becomes of the messages is finished later."""
        detached = Detached()
        acked, leases = detached.acked, self.leases
        last: LeaseBatch | None = None
        for position, (receipt, action) in enumerate(zip(receipts, actions, strict=True)):
            record = leases.pop(receipt, None)
            if record is None or record.batch is None:
                detached.refused.append(position)
                continue
            batch = record.batch
            del batch.members[record.seq]
            record.phase = LIMBO
            if batch is not last:
                detached.batches.append(batch)
                last = batch
            if isinstance(action, Ack):
                acked.append(record)
            else:
                detached.returned.append(Return.by(record, action))
        self._limbo_count += len(acked) + len(detached.returned)
        for batch in detached.batches:
            if not batch.members:
                # An emptied dictionary keeps its table; a cleared one gives it back.
                batch.members.clear()
                self.timers.note_stale()
        return detached

    def finish_acked(self, records: Iterable[Record]) -> None:
        """Remove messages in limbo for good."""
        known = self.records
        for record in records:
            if known.pop(record.seq, None) is not None:
                self._limbo_count -= 1
                if record.ordering_group is not None:
                    self.order.release(record.ordering_group)

    def finish_returned(self, returns: Iterable[Return], *, now_s: float) -> list[Record]:
        """Give messages in limbo back; return those that had their last delivery instead."""
        dead: list[Record] = []
        for each in returns:
            if each.record.seq in self.records:
                self._limbo_count -= 1
                self._give_back(each, now_s, dead)
        return dead

    def reattach(self, records: Iterable[Record]) -> None:
        """Put messages in limbo back under the lease they had."""
        for record in records:
            if record.seq in self.records and record.batch is not None:
                self._limbo_count -= 1
                if record.batch.lock is not None:
                    record.batch.lock.take_back(record.batch)
                self._lease_again(record, record.batch)

    def postpone(self, record: Record, *, until_s: float) -> None:
        """Hide a message in limbo under a lease without an owner, to decide anew at its end."""
        if record.seq in self.records:
            self._limbo_count -= 1
            record.receipt = self._tokens()
            self._lease_again(record, LeaseBatch(record.receipt, "", until_s))

    def _lease_again(self, record: Record, batch: LeaseBatch) -> None:
        record.phase = LEASED
        record.batch = batch
        self.leases[record.receipt] = record
        if not batch.members:
            self.timers.add(batch.expires_s, batch)
        batch.members[record.seq] = record

    def _give_back(self, each: Return, now_s: float, dead: list[Record]) -> bool:
        record, limit = each.record, self.settings.max_receive_count
        if not each.is_counted:
            record.attempt -= 1
        elif limit is not None and record.attempt >= limit:
            record.phase = LIMBO
            self._limbo_count += 1
            dead.append(record)
            return False
        record.batch = None
        record.receipt = ""
        record.phase = READY
        if each.delay_s > 0:
            record.phase = DELAYED
            record.due_s = now_s + each.delay_s
            self._delay(record)
        self.order.put_back(record)
        return True

    def _delay(self, record: Record) -> None:
        self._delayed_count += 1
        self.timers.add(record.due_s, record)

    # Time and leases.

    def promote(self, now_s: float, spares: Callable[[str], bool] | None = None) -> Lapse | None:
        """Do what time has brought: delays that are over, leases that ran out, but for those of
        owners that are spared.
        """
        if not self.timers.may_be_due(now_s):
            return None
        lapse = Lapse()
        spared: list[LeaseBatch | LockedSession] = []
        for subject in self.timers.pop_due(now_s):
            if spares and not isinstance(subject, Record) and spares(subject.owner):
                spared.append(subject)
            elif isinstance(subject, LeaseBatch):
                self._end_lease(subject, now_s, lapse)
            elif isinstance(subject, LockedSession):
                self.sessions.end(subject)
                lapse.locks.append(subject)
            else:
                self._delayed_count -= 1
                subject.phase = READY
                self.order.make_available(subject)
        for each in spared:
            self.timers.add(each.expires_s, each)
        return lapse

    def end_leases(
        self,
        batches: Iterable[LeaseBatch],
        *,
        now_s: float,
        locks: Iterable[LockedSession] = (),
    ) -> Lapse:
        """End leases and locks before their time; the delivery counts as an attempt."""
        lapse = Lapse()
        for batch in batches:
            self._end_lease(batch, now_s, lapse)
            self.timers.note_stale()
        for lock in locks:
            self.release(lock)
            lapse.locks.append(lock)
        return lapse

    def release(self, lock: LockedSession) -> None:
        """Let go of a session under which nothing is leased any more."""
        self.sessions.end(lock)
        self.timers.note_stale()

    def extend(self, receipts: Sequence[str], *, until_s: float) -> Extension:
        """Make leases end at `until_s`."""
        extension = Extension()
        wanted: dict[LeaseBatch, dict[int, Record]] = {}
        for position, receipt in enumerate(receipts):
            record = self.leases.get(receipt)
            if record is None or record.batch is None:
                extension.refused.append(position)
            else:
                wanted.setdefault(record.batch, {})[record.seq] = record
        for batch, records in wanted.items():
            if len(records) == len(batch.members):
                batch.expires_s = until_s
                self.timers.note_stale()
                extension.moved.append(batch)
                self.timers.add(until_s, batch)
            else:
                extension.shrunk.append(batch)
                extension.split.append(self._split(batch, records, until_s))
        return extension

    def _split(self, batch: LeaseBatch, records: dict[int, Record], until_s: float) -> LeaseBatch:
        part = LeaseBatch(self._tokens(), batch.owner, until_s, None, records)
        for seq, record in records.items():
            del batch.members[seq]
            record.batch = part
        if batch.lock is not None:
            batch.lock.add(part)
        self.timers.add(until_s, part)
        return part

    def _end_lease(self, batch: LeaseBatch, now_s: float, lapse: Lapse) -> None:
        lapse.batches.append(batch)
        for record in list(batch.members.values()):
            del self.leases[record.receipt]
            if self._give_back(Return(record, 0.0, True), now_s, lapse.dead):
                lapse.returned.append(record)
        batch.members.clear()

    # Administration.

    def reconfigure(self, settings: EngineSettings) -> None:
        """Adopt other settings; messages in the queue follow the new order from now on."""
        self.settings = settings
        self.deduplication.window_s = settings.deduplication_window_s
        self.order.rebuild(settings, self.records.values(), self.sessions)

    def restore(self, records: Iterable[Record], locks: Iterable[LockedSession] = ()) -> None:
        """Start from records as they once were, leased ones with their receipt and batch."""
        for record in records:
            self.records[record.seq] = record
            if record.phase == DELAYED:
                self._delay(record)
            elif record.phase == LEASED and record.batch is not None:
                self._lease_again(record, record.batch)
            elif record.phase == LIMBO:
                self._limbo_count += 1
        leased = {record.batch: None for record in self.leases.values() if record.batch}
        self.sessions.restore(locks, leased)
        self.order.rebuild(self.settings, self.records.values(), self.sessions)

    def peek(self, max_count: int) -> list[Message]:
        """The next available messages in the queue's order."""
        records: Iterable[Record] = self.records.values()
        if self.settings.is_lifo:
            records = reversed(self.records.values())
        return [r.message for r in islice((r for r in records if r.phase == READY), max_count)]

    def clear(self) -> int:
        """Remove every message, in flight or not, and return how many there were. Sessions stay
        with their owners.
        """
        count = len(self.records)
        for record in self.leases.values():
            if record.batch is not None:
                record.batch.members.clear()
        self.records.clear()
        self.leases.clear()
        self.order.rebuild(self.settings, (), self.sessions)
        self.timers.clear()
        self.sessions.schedule()
        self._delayed_count = self._limbo_count = 0
        return count

    def stats(self, now_s: float) -> QueueStats:
        """Count what is here now."""
        oldest = next(iter(self.records.values()), None)
        in_flight = len(self.leases) + self._limbo_count
        return QueueStats(
            name=self.settings.name,
            visible=len(self.records) - self._delayed_count - in_flight,
            in_flight=in_flight,
            delayed=self._delayed_count,
            oldest_age_s=None if oldest is None else max(0.0, now_s - oldest.sent_at_s),
        )


def _pop_each(order: DeliveryOrder, batch: LeaseBatch, max_count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < max_count and (record := order.pop(batch)) is not None:
        records.append(record)
    return records


# The sessions of one queue, purely: which group is locked, by whom and until when.
#
# A locked group counts as in flight, so that nothing of it is offered to ordinary receives, and
# they pay nothing for it. Messages without a group are in no session.


class LockedSessions:
    """Every lock that is held. The caller promotes before it asks."""

    def __init__(self, order: DeliveryOrder, timers: TimerHeap, tokens: Callable[[], str]) -> None:
        self._order = order
        self._timers = timers
        self._tokens = tokens
        self._held: dict[str, LockedSession] = {}

    def __iter__(self) -> Iterator[LockedSession]:
        return iter(list(self._held.values()))

    def find(self, token: str) -> LockedSession | None:
        """The lock of this token, as long as it is held."""
        return self._held.get(token)

    def accept(
        self, group: str | None, *, until_s: float, owner: str = "", request: int | None = None
    ) -> LockedSession | None:
        """Lock a group, or for None the next that has a message to give; None when it is in use.

        In use it is also while ordinary receives have some of it in flight.
        """
        wanted = self._order.next_free_group() if group is None else group
        ordering_group = None if wanted is None else self._order.lock(wanted)
        if wanted is None or ordering_group is None:
            return None
        lock = LockedSession(self._tokens(), wanted, owner, until_s, request, ordering_group)
        self._held[lock.id] = lock
        self._timers.add(until_s, lock)
        return lock

    def renew(self, lock: LockedSession, *, until_s: float) -> Extension:
        """Make a lock, and the leases under it, end then."""
        extension = Extension(moved=list(lock.unsettled()))
        subjects: list[LockedSession | LeaseBatch] = [lock, *extension.moved]
        for subject in subjects:
            subject.expires_s = until_s
            self._timers.note_stale()
            self._timers.add(until_s, subject)
        return extension

    def end(self, lock: LockedSession) -> None:
        """Let go of a lock. What was received under it has ended, or ends at the same moment."""
        if self._held.pop(lock.id, None) is not None:
            lock.is_held = False
            self._order.release(lock.ordering_group)

    def restore(self, locks: Iterable[LockedSession], batches: Iterable[LeaseBatch]) -> None:
        """Start from locks as they once were, and find what was received under them: no other
        receive has any of a locked group. The order is rebuilt after this.
        """
        by_group = {lock.group: lock for lock in locks}
        self._held.update((lock.id, lock) for lock in by_group.values())
        self.schedule()
        for batch in batches:
            groups = {record.message.group for record in batch.members.values()}
            for group in groups & by_group.keys():
                by_group[group or ""].add(batch)

    def schedule(self) -> None:
        """Add every lock to timers that were cleared."""
        for lock in self._held.values():
            self._timers.add(lock.expires_s, lock)


# De-duplication: which ids were seen within the window.


class DeduplicationWindow:
    """Remembers ids for `window_s` seconds, and forgets them at the next question after."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._until_s: dict[str, float] = {}
        self._order: deque[tuple[float, str]] = deque()
        self._forgotten: list[str] = []

    def __len__(self) -> int:
        return len(self._until_s)

    def admit(self, key: str, now_s: float) -> bool:
        """Return whether `key` is new, and remember it if so."""
        self._forget(now_s)
        # Those before it in order may be kept longer, from when the window was wider.
        if self._until_s.get(key, now_s) > now_s:
            return False
        self.remember(key, now_s + self.window_s)
        return True

    def remember(self, key: str, until_s: float) -> None:
        """Refuse `key` until then."""
        self._until_s[key] = until_s
        self._order.append((until_s, key))

    def remembered(self, now_s: float) -> list[tuple[str, float]]:
        """What is refused now, and until when, for a snapshot."""
        kept = [each for each in self._until_s.items() if each[1] > now_s]
        return sorted(kept, key=lambda each: (each[1], each[0]))

    def withdraw(self, keys: Iterable[str]) -> None:
        """Forget ids whose message was not accepted in the end."""
        for key in keys:
            self._until_s.pop(key, None)

    def _forget(self, now_s: float) -> None:
        order = self._order
        while order and order[0][0] <= now_s:
            until_s, key = order.popleft()
            # A withdrawn id may have been admitted again with a later end.
            if self._until_s.get(key) == until_s:
                del self._until_s[key]
                self._forgotten.append(key)

    def take_forgotten(self) -> list[str]:
        """The ids forgotten since the last call, for the journal."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten


# Timers: what happens to a queue by the mere passing of time, soonest first.

_Subject = Record | LeaseBatch | LockedSession
_Entry = tuple[float, int, _Subject]

# Below this many stale entries rebuilding the heap costs more than it frees.
_WORTH_COMPACTING = 64


class TimerHeap:
    """Delayed messages, lease batches and session locks by the time they fall due.

    Entries are never moved: an extension adds another, and an entry whose subject has changed
    is stale. Stale ones are skipped, and swept once they are the majority, so that a million
    settled messages leave nothing behind.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._tie = count()
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_s: float, subject: _Subject) -> None:
        """Let `subject` fall due then."""
        heappush(self._heap, (due_s, next(self._tie), subject))

    def note_stale(self) -> None:
        """Count one entry as stale, and sweep when most are."""
        self._stale += 1
        if self._stale > _WORTH_COMPACTING and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if _is_live(entry)]
            heapify(self._heap)
            self._stale = 0

    def may_be_due(self, now_s: float) -> bool:
        """Whether something, if only a stale entry, is due: cheap enough to ask every time."""
        return bool(self._heap) and self._heap[0][0] <= now_s

    def next_due_s(self) -> float:
        """When the next thing happens; infinity for never."""
        heap = self._heap
        while heap and not _is_live(heap[0]):
            heappop(heap)
            self._stale = max(0, self._stale - 1)
        return heap[0][0] if heap else inf

    def pop_due(self, now_s: float) -> Iterator[_Subject]:
        """Take what is due, in the order it fell due."""
        while self.next_due_s() <= now_s:
            yield heappop(self._heap)[2]

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._stale = 0


def _is_live(entry: _Entry) -> bool:
    due_s, _, subject = entry
    if isinstance(subject, Record):
        return subject.phase == DELAYED and subject.due_s == due_s
    is_live = subject.is_held if isinstance(subject, LockedSession) else bool(subject.members)
    return is_live and subject.expires_s == due_s
