"""One queue as a pure state machine: no await, no clock, no log; times are arguments.

`record.RecordPhase` has the transitions, `delivery_order.py` the order. Whatever removes a
message takes two steps so that it can be written down in between: the message goes to limbo,
where it cannot be received, and then `remove` or, when the write failed, `restore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from sys import intern

from ..model import NewMessage, QueueCounts, SqsQueueSettings
from .deduplication import (
    WINDOW_S,
    Attempts,
    DeduplicationScope,
    KeyWindow,
    key_in_group,
    key_in_queue,
)
from .delivery_order import FifoOrder, SqsOrder, StandardOrder
from .record import (
    DELAYED,
    GONE,
    IN_FLIGHT,
    LIMBO,
    VISIBLE,
    NewMessages,
    SqsRecord,
    TakenBatch,
    TimedHold,
    check_text,
    pack_extra,
)


class SqsQueueState:
    """Everything one queue knows. The caller promotes before it takes or looks."""

    def __init__(self, settings: SqsQueueSettings) -> None:
        self.settings = settings
        self.is_fifo = settings.address.is_fifo
        self.records: dict[int, SqsRecord] = {}
        """Every message, oldest first."""
        self.timers = HoldTimers()
        self.ages = Ages(self.records)
        self.deduplication = KeyWindow()
        self._scope = DeduplicationScope(settings.deduplicates_per_group)
        self.attempts = Attempts()
        self.order: SqsOrder = FifoOrder() if self.is_fifo else StandardOrder()
        self.expiry_hint_s = inf
        """No message's retention ends before this Unix time."""
        self._counts = [0, 0, 0, 0, 0]

    @property
    def in_flight_count(self) -> int:
        """How many messages are in flight, or being removed."""
        return self._counts[IN_FLIGHT] + self._counts[LIMBO]

    # Sending.

    def prepare(
        self, messages: Sequence[NewMessage], *, first_seq: int, now_s: float, time_s: float
    ) -> NewMessages:
        """Make records for the messages that are not duplicates; `add` stores them."""
        arrival = NewMessages(keys_until_s=now_s + WINDOW_S)
        records, numbers, own_delay_s = arrival.records, arrival.numbers, self.settings.delay_s
        if self.is_fifo:
            self.deduplication.forget(now_s)
            arrival.forgotten = self.deduplication.take_forgotten()
        seq = first_seq
        for message, extra in zip(messages, _pack_all(messages), strict=True):
            group = message.group
            if self.is_fifo:
                original = self._admit(message, seq, now_s, arrival)
                if original is not None:
                    numbers.append(original)
                    continue
            elif group is not None:
                group = intern(group)
            record = SqsRecord(seq, seq, message.body, extra, group, None, time_s)
            delay_s = own_delay_s if message.delay_s is None else message.delay_s
            if delay_s > 0:
                _delay(record, now_s + delay_s, arrival)
            records.append(record)
            numbers.append(seq)
            seq += 1
        if arrival.keys:
            self.deduplication.keep(arrival.keys, arrival.keys_until_s)
        return arrival

    def _admit(
        self, message: NewMessage, seq: int, now_s: float, arrival: NewMessages
    ) -> int | None:
        """Remember the key of a new message; the number of the original for a duplicate."""
        given, group = message.deduplication_id, message.group or ""
        if given is None:
            return None
        in_queue, in_group = key_in_queue(given), key_in_group(group, given)
        original = self.deduplication.find(in_queue, in_group)
        if original is None:
            key = in_group if self._scope.is_group_at(now_s) else in_queue
            self.deduplication.remember(key, seq)
            arrival.keys.append((key, seq))
        return original

    def withdraw(self, arrival: NewMessages) -> None:
        """Forget the keys of messages that were not accepted in the end."""
        for key, seq in arrival.keys:
            self.deduplication.withdraw(key, seq)

    def add(self, records: Sequence[SqsRecord], delays: Iterable[TimedHold] = ()) -> None:
        """Store records in the order of their numbers, and the holds of those delayed."""
        known, ages, counts = self.records, self.ages, self._counts
        oldest_s = self.expiry_hint_s - self.settings.retention_s
        for record in records:
            known[record.seq] = record
            counts[record.phase] += 1
            sent_at_s = record.sent_at_s
            if sent_at_s >= ages.latest_s:
                ages.latest_s = sent_at_s
            else:
                ages.note_elder(record)
            if sent_at_s < oldest_s:
                oldest_s = sent_at_s
        self.order.extend(records)
        self.expiry_hint_s = oldest_s + self.settings.retention_s
        for hold in delays:
            self.timers.add(hold)

    # Receiving.

    def take(
        self, max_count: int, *, visibility_s: float, now_s: float, time_s: float, limit: float
    ) -> tuple[TakenBatch | None, list[SqsRecord]]:
        """Hide up to `max_count` messages for a receiver.

        Those that were received `limit` times already go to limbo instead, and are returned
        apart, for the shell to move them.
        """
        if not self.order.has_candidates():
            return None, []
        records, dead = self.order.take(max_count, limit)
        counts = self._counts
        for record in dead:
            record.phase = LIMBO
        counts[LIMBO] += len(dead)
        counts[VISIBLE] -= len(dead) + len(records)
        if not records:
            return None, dead
        hold = TimedHold(now_s + visibility_s, records, now_s, len(records))
        for record in records:
            record.phase = IN_FLIGHT
            record.hold = hold
            record.receive_count += 1
            if not record.first_at_s:
                record.first_at_s = time_s
        counts[IN_FLIGHT] += len(records)
        self.timers.add(hold)
        return TakenBatch(records, [r.receive_count for r in records], hold), dead

    def repeat(self, taken: TakenBatch, *, visibility_s: float, now_s: float) -> TakenBatch:
        """Hide what an attempt took for longer, to be handed out once more."""
        hold = TimedHold(now_s + visibility_s, taken.records, now_s)
        repeated = TakenBatch(taken.records, taken.receive_counts, hold, True)
        self.attempts.replace(taken, repeated)
        for record in taken.records:
            self._rehide(record, hold)
        self.timers.add(hold)
        return repeated

    def revoke(self, taken: TakenBatch) -> None:
        """Undo a `take` that was not delivered: nothing is hidden, nothing counted."""
        for record in taken.records:
            if record.phase == IN_FLIGHT and record.hold is taken.hold:
                record.receive_count -= 1
                if not record.receive_count:
                    record.first_at_s = 0.0
                self.show(record)

    # Visibility.

    def change(self, changes: Iterable[tuple[SqsRecord, float]], *, now_s: float) -> None:
        """Hide messages for other times from now on, also those visible again by now."""
        holds: dict[tuple[float, float, str | None], TimedHold] = {}
        for record, visibility_s in changes:
            if visibility_s <= 0:
                if record.phase == IN_FLIGHT:
                    self.show(record)
                continue
            # The twelve hours count from the receive, not from the change.
            before = record.hold
            taken_s, holder = (now_s, "") if before is None else (before.taken_s, before.holder)
            key = (visibility_s, taken_s, holder)
            hold = holds.get(key)
            if hold is None:
                hold = holds[key] = TimedHold(now_s + visibility_s, [], taken_s, holder=holder)
            self._keep_in_flight(record, hold)
        for hold in holds.values():
            self.timers.add(hold)

    def resume(self, records: Iterable[SqsRecord], hold: TimedHold) -> None:
        """Have messages in flight that were so when the server before this one crashed."""
        for record in records:
            self._keep_in_flight(record, hold)
        self.timers.add(hold)

    def _keep_in_flight(self, record: SqsRecord, hold: TimedHold) -> None:
        if record.phase == VISIBLE:
            self._enter(record, IN_FLIGHT)
            self.order.withdraw(record)
        self._rehide(record, hold)
        hold.records.append(record)

    def show(self, record: SqsRecord) -> None:
        """Make a message in flight or in limbo visible."""
        self._unhold(record)
        self._enter(record, VISIBLE)
        self.order.put_back(record)

    def promote(self, now_s: float) -> None:
        """Do what time has brought: delays that are over, receives that ran out."""
        for hold in self.timers.pop_due(now_s):
            for record in hold.records:
                if record.hold is not hold:
                    continue
                if record.phase == DELAYED:
                    record.hold = None
                    self._enter(record, VISIBLE)
                    self.order.surface(record)
                elif record.phase == IN_FLIGHT:
                    record.hold = None
                    self._enter(record, VISIBLE)
                    self.order.put_back(record)
            hold.left = 0
            if self.is_fifo:
                self.attempts.drop(hold)

    # Removing.

    def send_to_limbo(self, records: Iterable[SqsRecord]) -> None:
        """Keep messages from all receivers until their removal is written down."""
        for record in records:
            if record.phase == LIMBO:
                continue
            phase = record.phase
            self._counts[phase] -= 1
            self._counts[LIMBO] += 1
            record.phase = LIMBO
            if phase != IN_FLIGHT:
                self.order.withdraw(record)

    def take_to_limbo(self, max_count: int) -> list[SqsRecord]:
        """Take the next visible messages out, to be moved to another queue."""
        records, _ = self.order.take(max_count, inf)
        for record in records:
            self._enter(record, LIMBO)
        return records

    def remove(self, records: Iterable[SqsRecord]) -> None:
        """Remove messages in limbo for good; those gone already are skipped."""
        known = self.records
        removed: list[SqsRecord] = []
        for record in records:
            if record.phase == LIMBO:
                del known[record.seq]
                record.phase = GONE
                if record.hold is not None:
                    self._unhold(record)
                removed.append(record)
        self._counts[LIMBO] -= len(removed)
        self.order.release(removed)

    def restore(self, records: Iterable[SqsRecord], *, now_s: float) -> None:
        """Put messages in limbo back to where they were, as far as time allows."""
        for record in records:
            if record.phase != LIMBO:
                continue
            hold = record.hold
            if hold is None or hold.due_s <= now_s or not hold.left:
                self.show(record)
            elif hold.taken_s:
                self._enter(record, IN_FLIGHT)
            else:
                self._enter(record, DELAYED)
                self.order.put_back(record)

    def postpone(self, records: Sequence[SqsRecord], *, until_s: float) -> None:
        """Hide messages in limbo for a while, to decide on them anew afterwards."""
        hold = TimedHold(until_s, [], until_s)
        for record in records:
            if record.phase == LIMBO:
                self._enter(record, IN_FLIGHT)
                self._rehide(record, hold)
                hold.records.append(record)
        if hold.left:
            self.timers.add(hold)

    def expired(self, time_s: float) -> list[SqsRecord]:
        """Send the messages to limbo whose retention is over."""
        records = self.ages.sent_before(time_s - self.settings.retention_s)
        self.send_to_limbo(records)
        self.renew_expiry_hint(time_s)
        return records

    def renew_expiry_hint(self, time_s: float) -> None:
        """Find out anew when the next message's retention ends; not before `time_s`."""
        due_s = self.ages.oldest_s() + self.settings.retention_s
        # What is past it now is in limbo, and asked about again if that fails.
        self.expiry_hint_s = due_s if due_s > time_s else time_s + 1.0

    # Administration.

    def reconfigure(self, settings: SqsQueueSettings, *, now_s: float, time_s: float) -> None:
        """Adopt other settings."""
        self._scope.change(settings.deduplicates_per_group, now_s)
        self._redelay(self.delays_under(settings, time_s=time_s), now_s - time_s)
        self.settings = settings
        self.expiry_hint_s = self.ages.oldest_s() + settings.retention_s

    def delays_under(
        self, settings: SqsQueueSettings, *, time_s: float
    ) -> list[tuple[SqsRecord, float]]:
        """The messages that other settings delay otherwise, and until which Unix time, zero for
        no longer. AWS: the delay of a FIFO queue counts for messages already in it, too; that of
        a standard queue does not.
        """
        before_s, after_s = self.settings.delay_s, settings.delay_s
        if not self.is_fifo or before_s == after_s:
            return []
        found: list[tuple[SqsRecord, float]] = []
        for record in reversed(self.records.values()):
            if record.sent_at_s + max(before_s, after_s) <= time_s:
                break
            if record.phase in (VISIBLE, DELAYED) and not record.receive_count:
                due_s = record.sent_at_s + after_s
                if due_s > time_s:
                    found.append((record, due_s))
                elif record.phase == DELAYED:
                    found.append((record, 0.0))
        return found[::-1]

    def _redelay(self, delays: Sequence[tuple[SqsRecord, float]], offset_s: float) -> None:
        holds: dict[float, TimedHold] = {}
        for record, due_s in delays:
            self._unhold(record)
            if due_s:
                hold = holds.setdefault(due_s, TimedHold(due_s + offset_s, []))
                self._rehide(record, hold)
                hold.records.append(record)
                self._enter(record, DELAYED)
            else:
                self._enter(record, VISIBLE)
                self.order.surface(record)
        for hold in holds.values():
            self.timers.add(hold)

    def clear(self, below: int) -> int:
        """Remove every message, in flight or not, and return how many there were.

        De-duplication forgets the messages whose number is below this one: some that were
        sent since may be on their way here.
        """
        count = len(self.records)
        for record in self.records.values():
            record.phase = GONE
            record.hold = None
        self.records.clear()
        self.ages.clear()
        self.order.clear()
        self.timers.clear()
        self.attempts.clear()
        self.deduplication.clear(below)
        self.expiry_hint_s = inf
        self._counts = [0, 0, 0, 0, 0]
        return count

    def counts(self, time_s: float) -> QueueCounts:
        """Count what is here now."""
        oldest_s = self.ages.oldest_s()
        return QueueCounts(
            visible=self._counts[VISIBLE],
            in_flight=self.in_flight_count,
            delayed=self._counts[DELAYED],
            oldest_age_s=None if oldest_s == inf else max(0.0, time_s - oldest_s),
        )

    def _enter(self, record: SqsRecord, phase: int) -> None:
        self._counts[record.phase] -= 1
        self._counts[phase] += 1
        record.phase = phase

    def _unhold(self, record: SqsRecord) -> None:
        hold, record.hold = record.hold, None
        if hold is None:
            return
        hold.left -= 1
        if not hold.left:
            # Stale, it waits for its time to be over, and must not keep messages alive till then.
            hold.records = []
            self.timers.note_stale()
            if self.is_fifo:
                self.attempts.drop(hold)

    def _rehide(self, record: SqsRecord, hold: TimedHold) -> None:
        self._unhold(record)
        record.hold = hold
        hold.left += 1


def _pack_all(messages: Sequence[NewMessage]) -> list[bytes | None]:
    """Pack before anything changes: a text that cannot be stored refuses the whole batch."""
    for message in messages:
        check_text(message.body)
        if message.group is not None:
            check_text(message.group)
    return [pack_extra(message) for message in messages]


def _delay(record: SqsRecord, due_s: float, arrival: NewMessages) -> None:
    hold = next((each for each in arrival.delays if each.due_s == due_s), None)
    if hold is None:
        hold = TimedHold(due_s, [])
        arrival.delays.append(hold)
    hide(record, hold)


def hide(record: SqsRecord, hold: TimedHold) -> None:
    """Delay a message that is in no queue yet."""
    record.phase = DELAYED
    record.hold = hold
    hold.records.append(record)
    hold.left += 1


# Ages: which messages are past their queue's retention, without looking at all of them.

_WORTH_COMPACTING = 64


class Ages:
    """Finds the oldest of a queue's messages.

    Messages come in the order they were sent, so the oldest are the first in `records`; only
    those that a redrive brought keep an older time, and are listed apart.
    """

    def __init__(self, records: Mapping[int, SqsRecord]) -> None:
        self._records = records
        self.latest_s = -inf
        """When the last message in order was sent: code that adds one keeps this up to date."""
        self._elders: list[tuple[float, int]] = []

    def note_elder(self, record: SqsRecord) -> None:
        """Take note of a message that was sent before another that came earlier."""
        heappush(self._elders, (record.sent_at_s, record.seq))
        if len(self._elders) > _WORTH_COMPACTING + 2 * len(self._records):
            self._elders = [each for each in self._elders if each[1] in self._records]
            heapify(self._elders)

    def oldest_s(self) -> float:
        """When the oldest was sent; infinity when there is none."""
        elders = self._elders
        while elders and elders[0][1] not in self._records:
            heappop(elders)
        first = next(iter(self._records.values()), None)
        if first is None:
            return inf
        return min(first.sent_at_s, elders[0][0]) if elders else first.sent_at_s

    def sent_before(self, cutoff_s: float) -> list[SqsRecord]:
        """Every message sent at that time or before, but those on their way out already."""
        found = {r.seq: r for r in self._elders_before(cutoff_s)}
        for record in self._records.values():
            # An elder that is too young here is older than all that follow it.
            if record.sent_at_s > cutoff_s:
                break
            found[record.seq] = record
        return [record for record in found.values() if record.phase != LIMBO]

    def clear(self) -> None:
        """Forget everything."""
        self._elders.clear()
        self.latest_s = -inf

    def _elders_before(self, cutoff_s: float) -> Iterable[SqsRecord]:
        elders, again = self._elders, []
        while elders and elders[0][0] <= cutoff_s:
            entry = heappop(elders)
            record = self._records.get(entry[1])
            if record is not None:
                again.append(entry)
                yield record
        # Listed until they are gone: their removal may fail.
        for entry in again:
            heappush(elders, entry)


# Timers: which holds end by the mere passing of time, soonest first.

# Below this many stale entries rebuilding the heap costs more than it frees.


class HoldTimers:
    """Holds by the time they end.

    A hold without messages is stale: skipped, and swept once stale ones are the majority, so
    that a million deleted messages leave nothing behind.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimedHold]] = []
        self._tie = count()
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, hold: TimedHold) -> None:
        """Let a hold end when it is due."""
        heappush(self._heap, (hold.due_s, next(self._tie), hold))

    def note_stale(self) -> None:
        """Count one hold as stale, and sweep when most are."""
        self._stale += 1
        if self._stale > _WORTH_COMPACTING and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].left]
            heapify(self._heap)
            self._stale = 0

    def may_be_due(self, now_s: float) -> bool:
        """Whether a hold, if only a stale one, is due: cheap enough to ask every time."""
        return bool(self._heap) and self._heap[0][0] <= now_s

    def next_due_s(self) -> float:
        """When the next hold ends; infinity for never."""
        heap = self._heap
        while heap and not heap[0][2].left:
            heappop(heap)
            self._stale = max(0, self._stale - 1)
        return heap[0][0] if heap else inf

    def pop_due(self, now_s: float) -> Iterator[TimedHold]:
        """Take the holds that are due, in the order they fell due."""
        while self.next_due_s() <= now_s:
            yield heappop(self._heap)[2]

    def receives(self) -> Iterator[TimedHold]:
        """The holds of receives that have messages, in no order."""
        return (hold for _, _, hold in self._heap if hold.left and hold.taken_s)

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._stale = 0
