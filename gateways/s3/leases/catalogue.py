"""The catalogue: what one process knows of a queue, and what it should do next. No I/O.

Batches are listed (closed), read when their turn comes (open), and finished when every message of
theirs is known to be done. Knowledge grows old while others work on the same queue, so it decides
nothing: it says what to try, and the store's conditions decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from zlib import crc32

import attrs

from .codec import BatchContent, BatchId, LeaseObject, MessageId
from .slots import ClosedBatch, Finished, OpenBatch, Sighting, Slot, SlotPhase

_SHARED_S = 60.0
"""How long a process that met another one reckons with it."""
_STRETCH = 512
"""About so many messages in a row are claimed in an order of its own by each process that shares a
queue: in the same order, each would claim what the others claim, and pay for it in vain. Half a
page of leases, so that one listing shows all that others have of a stretch."""


@attrs.frozen(kw_only=True)
class QueuePolicy:
    """How a catalogue chooses."""

    is_lifo: bool
    is_strict: bool
    look_again_s: float
    cache_bytes: int
    linger_s: float
    owner: str
    """Spreads processes: where several claim, each begins elsewhere."""


class Catalogue:
    """Everything one process knows of one queue. Times are the store's."""

    def __init__(self, policy: QueuePolicy) -> None:
        self._reset(policy)

    def adopt(self, policy: QueuePolicy) -> None:
        """Choose differently from now on. What was known is to be found out again."""
        for number in list(self.opened):
            self.drop(number)
        turn = self.turn
        self._reset(policy)
        self.order.turn = turn

    def _reset(self, policy: QueuePolicy) -> None:
        self.opened: dict[int, OpenBatch] = {}
        self.closed = SlotBatches(self.order_of)
        self.finished: dict[int, Finished] = {}
        self._unremoved: set[int] = set()
        """Numbers of finished batches that this process has not removed; of the others their leases
        are left."""
        self.order = ReadyOrder()
        self.policy = policy
        self._cached_bytes = 0
        self.contested: set[int] = set()
        """Numbers of open batches whose leases are to be listed before more is claimed."""
        self._shared_until_s = -inf
        self._stretch = 1
        """How many numbers in a row this process takes in an order of its own."""
        self.is_outdated = False
        """Whether batches are there that are not in the catalogue: list the whole queue."""

    @property
    def has_room(self) -> bool:
        """Whether more may be kept in memory."""
        return self._cached_bytes < self.policy.cache_bytes

    def is_shared(self, earliest_s: float) -> bool:
        """Whether others have been met here of late: then leases are listed before claims."""
        return earliest_s < self._shared_until_s

    def order_of(self, number: int) -> int:
        """Where a batch comes; the least is claimed from first."""
        if self._stretch > 1:
            # Shuffled, not begun elsewhere: two that go in a row keep step from where they meet on.
            start = self.stretch_start(number)
            number = (start << 64) + (self._chance(number) << 32) + number - start
        return -number if self.policy.is_lifo else number

    def stretch_start(self, number: int) -> int:
        """The first number of those that are claimed in an order of their own with this one."""
        return number - number % self._stretch

    def note_rival(self) -> None:
        """Another process claimed what this one wanted: take the batches in another order."""
        if self._stretch == 1 and not (self.policy.is_strict or self.policy.is_lifo):
            counts = [each.id.count for each in (*self.closed, *self.opened.values())]
            self._spread(max(1, _STRETCH * len(counts) // max(1, sum(counts))))

    def note_alone(self, earliest_s: float) -> None:
        """Go by the numbers again when others have not been met for long."""
        if self._stretch > 1 and not self.is_shared(earliest_s):
            self._spread(1)

    @property
    def turn(self) -> int:
        """To be noted before a listing is asked for: what changed since is newer than it."""
        return self.order.turn

    def knows(self, number: int) -> bool:
        """Whether a batch of this number is in the catalogue."""
        return number in self.opened or number in self.closed or number in self.finished

    # Batches.

    def close(self, batch: BatchId, written_s: float, *, is_charted: bool) -> None:
        """Note a batch that a listing shows. `is_charted` when it is so new that most of it
        will not be claimed yet.
        """
        if not self.knows(batch.number):
            self.closed.put(ClosedBatch(batch, written_s, self.order.tick(), is_charted))

    def open(self, batch: BatchId, content: BatchContent, *, earliest_s: float) -> None:
        """Look after the messages of a batch that is closed; what has no batch is ignored."""
        there = self.opened.get(batch.number)
        if there is not None:
            if there.content is None:
                there.content = content
                self._cached_bytes += content.size
            return
        closed = self.closed.pop(batch.number)
        if closed is None:
            return
        # A batch with more or fewer messages than its key says was not written by this layout.
        slots = [Slot(MessageId(batch.number, place)) for place in range(len(content.messages))]
        is_charted, written_s = closed.is_charted, closed.written_s
        opened = OpenBatch(batch, slots, content, written_s, is_charted, len(slots))
        self.opened[batch.number] = opened
        self._cached_bytes += content.size
        offset = self._offset(opened) if self.is_shared(earliest_s) else 0
        for slot, batched in zip(slots, content.messages, strict=True):
            slot.rank = self._rank(slot.id, offset=offset, count=len(slots))
            slot.due_s = batched.visible_at_s
            sighting = closed.leases.get(slot.id.place)
            if sighting is not None:
                self._sight(slot, sighting)
            else:
                is_due = batched.visible_at_s <= earliest_s
                self.order.enter(slot, SlotPhase.READY if is_due else SlotPhase.HIDDEN)
        self._make_room()

    def drop(self, number: int) -> None:
        """Forget a batch that is no longer there."""
        self.closed.pop(number)
        self.finished.pop(number, None)
        self._unremoved.discard(number)
        self.contested.discard(number)
        opened = self.opened.pop(number, None)
        if opened is not None:
            self._forget_content(opened)
            for slot in opened.slots:
                self.order.enter(slot, SlotPhase.DONE)

    def drop_missing(self, present: set[int], *, after: int, upto: float, turn: int) -> None:
        """Forget the batches that a listing of these numbers does not show, if they were known
        before it.
        """
        known = [
            *((each.id.number, each.turn) for each in self.closed),
            # What this process has removed has leases left, which it looks after.
            *(
                (each.id.number, each.turn)
                for each in self.finished.values()
                if each.id.number in self._unremoved
            ),
            *(
                (each.id.number, max((slot.turn for slot in each.slots), default=0))
                for each in self.opened.values()
            ),
        ]
        for number, changed in known:
            if after < number <= upto and number not in present and changed <= turn:
                self.drop(number)

    def to_remove(self) -> list[BatchId]:
        """Finished batches that are still there."""
        return [self.finished[number].id for number in self._unremoved]

    def note_removed(self, batches: Iterable[BatchId]) -> None:
        """They are gone, with the bodies; their leases are not."""
        self._unremoved.difference_update(each.number for each in batches)

    def to_clean_up(self, earliest_s: float) -> list[BatchId]:
        """Finished batches that were written so long ago that their leases may go as well."""
        return [
            each.id
            for each in self.finished.values()
            if each.written_s + self.policy.linger_s <= earliest_s
        ]

    # Leases.

    def chart(
        self, leases: Mapping[MessageId, Sighting], *, first: int, upto: float, turn: int
    ) -> None:
        """Take note of a listing that has every lease of the numbers from `first` to `upto`."""
        by_batch: dict[int, dict[int, Sighting]] = {}
        for message, sighting in leases.items():
            by_batch.setdefault(message.number, {})[message.place] = sighting
        for closed in self.closed:
            if first <= closed.id.number <= upto:
                closed.leases = by_batch.get(closed.id.number, {})
                closed.is_charted = True
                self.closed.uncharted.discard(closed.id.number)
                if closed.is_done:
                    self._finish(closed.id, closed.written_s)
        for opened in list(self.opened.values()):
            if first <= opened.id.number <= upto:
                opened.is_charted = True
                self.contested.discard(opened.id.number)
                for slot in opened.slots:
                    if slot.turn <= turn:
                        seen = by_batch.get(opened.id.number, {}).get(slot.id.place)
                        self._see(slot, seen)

    def note_lease(self, slot: Slot, etag: str, lease: LeaseObject, *, is_own: bool) -> None:
        """A lease was written here, or read: hidden until it is over."""
        if slot.phase is SlotPhase.DONE:
            return
        slot.etag, slot.lease = etag, lease
        slot.due_s, slot.must_read = lease.expires_s, not is_own
        self.order.enter(slot, SlotPhase.HIDDEN)

    def note_ready(
        self, slot: Slot, etag: str | None = None, lease: LeaseObject | None = None
    ) -> None:
        """It can be claimed: over this version of its lease, or as one that has none."""
        if slot.phase is SlotPhase.DONE:
            return
        slot.etag, slot.lease, slot.must_read = etag, lease, False
        self.order.enter(slot, SlotPhase.READY)

    def note_foreign_lease(self, slot: Slot, since_s: float) -> None:
        """Another has it, since then at the latest; its lease is read in a while."""
        if slot.phase is SlotPhase.DONE:
            return
        slot.etag = slot.lease = None
        slot.due_s, slot.must_read = since_s + self.policy.look_again_s, True
        self.order.enter(slot, SlotPhase.HIDDEN)
        self._shared_until_s = since_s + _SHARED_S
        opened = self.opened.get(slot.id.number)
        if opened is not None:
            self._contest(opened)

    def note_done(self, slot: Slot) -> None:
        """Done for good; with the last of its batch, the batch is finished."""
        if slot.phase is SlotPhase.DONE:
            return
        self.order.enter(slot, SlotPhase.DONE)
        slot.etag = slot.lease = None
        opened = self.opened.get(slot.id.number)
        if opened is not None:
            opened.left -= 1
            if not opened.left:
                self._finish(opened.id, opened.written_s)

    def left_to_others(self) -> int | None:
        """The first batch of which some is done, and the rest is with others as far as is known:
        a listing may show that all of it is done.
        """
        numbers = [
            each.id.number
            for each in self.opened.values()
            if each.left < len(each.slots)
            and all(slot.phase is SlotPhase.DONE or slot.must_read for slot in each.slots)
        ]
        return min(numbers, default=None)

    def doubt_foreign_leases(self) -> None:
        """Have the leases listed again that others hold, as far as this process knows."""
        for opened in self.opened.values():
            if any(slot.must_read and slot.phase is SlotPhase.HIDDEN for slot in opened.slots):
                self._doubt(opened)

    def distrust(self, head: Slot, earliest_s: float) -> None:
        """What was taken for the head of a strict queue is not: look at everything anew, and
        leave it for a while.
        """
        self.is_outdated = True
        for opened in self.opened.values():
            self._doubt(opened)
        if head.phase is SlotPhase.READY:
            head.due_s = earliest_s + self.policy.look_again_s
            self.order.enter(head, SlotPhase.HIDDEN)

    # What follows from it.

    def _see(self, slot: Slot, sighting: Sighting | None) -> None:
        if slot.phase is SlotPhase.DONE or slot.phase is SlotPhase.CLAIMING:
            return
        if sighting is not None:
            if sighting.etag != slot.etag:
                self._sight(slot, sighting)
        elif slot.etag is not None or slot.must_read:
            # A claim that was in doubt and did not happen.
            self.note_ready(slot)

    def _sight(self, slot: Slot, sighting: Sighting) -> None:
        if sighting.is_done:
            self.note_done(slot)
            return
        slot.etag, slot.lease, slot.must_read = None, None, True
        slot.due_s = sighting.modified_s + self.policy.look_again_s
        self.order.enter(slot, SlotPhase.HIDDEN)

    def _contest(self, opened: OpenBatch) -> None:
        """Others claim from this batch: see what they have, and begin elsewhere."""
        if not opened.is_charted:
            return
        self._doubt(opened)
        offset = self._offset(opened)
        for slot in opened.slots:
            slot.rank = self._rank(slot.id, offset=offset, count=len(opened.slots))
            if slot.phase is SlotPhase.READY:
                self.order.enter(slot, SlotPhase.READY)

    def _spread(self, stretch: int) -> None:
        self._stretch = stretch
        self.closed.sort()
        for opened in self.opened.values():
            for slot in opened.slots:
                slot.rank = (self.order_of(slot.id.number), slot.rank[1])
                if slot.phase is SlotPhase.READY:
                    self.order.enter(slot, SlotPhase.READY)

    def _offset(self, opened: OpenBatch) -> int:
        """Where in a batch this process begins when others claim from it too."""
        if self.policy.is_strict or not opened.slots:
            return 0
        return self._chance(opened.id.number) % len(opened.slots)

    def _chance(self, number: int) -> int:
        """Another in each process, and for each number: two that meet here do not meet there."""
        return crc32(f"{self.policy.owner} {number}".encode())

    def _doubt(self, opened: OpenBatch) -> None:
        opened.is_charted = False
        self.contested.add(opened.id.number)

    def _finish(self, batch: BatchId, written_s: float) -> None:
        self.closed.pop(batch.number)
        self.contested.discard(batch.number)
        opened = self.opened.pop(batch.number, None)
        if opened is not None:
            self._forget_content(opened)
        self.finished[batch.number] = Finished(batch, written_s, self.turn)
        self._unremoved.add(batch.number)

    def _rank(self, message: MessageId, *, offset: int, count: int) -> tuple[int, int]:
        place = (message.place - offset) % count
        return self.order_of(message.number), -place if self.policy.is_lifo else place

    def _forget_content(self, opened: OpenBatch) -> None:
        if opened.content is not None:
            self._cached_bytes -= opened.content.size
            opened.content = None

    def _make_room(self) -> None:
        """Forget what takes too much room, first that of which nothing is READY."""
        if self._cached_bytes <= self.policy.cache_bytes:
            return
        for opened in self.opened.values():
            if not any(slot.phase < SlotPhase.HIDDEN for slot in opened.slots):
                self._forget_content(opened)
            if self._cached_bytes <= self.policy.cache_bytes:
                return


def known_leases(catalogue: Catalogue) -> dict[str, LeaseObject]:
    """What is known of leases, by their ETags."""
    slots = (slot for opened in catalogue.opened.values() for slot in opened.slots)
    return {slot.etag: slot.lease for slot in slots if slot.etag and slot.lease}


# Ready order: which message is claimed next, and which are to be looked at when.


class ReadyOrder:
    """READY slots by rank, HIDDEN ones by when they are due. Entries that are out of date are
    passed over, not searched for.
    """

    def __init__(self) -> None:
        self._ready: list[tuple[tuple[int, int], int, Slot]] = []
        self._hidden: list[tuple[float, int, int, Slot]] = []
        self._order = count()
        self.turn = 0
        """Grows with each change of a slot: tells what is newer than a listing."""
        self.ready_count = 0
        self.unread: dict[Slot, None] = {}
        """Due, and to be read before more is known."""

    def tick(self) -> int:
        """The turn of a change that happens now."""
        self.turn += 1
        return self.turn

    def enter(self, slot: Slot, phase: SlotPhase) -> None:
        """Change a slot's phase; whatever else has changed is set before."""
        if slot.phase is SlotPhase.READY and slot.turn:
            self.ready_count -= 1
        self.unread.pop(slot, None)
        slot.turn = self.tick()
        slot.phase = phase
        if phase is SlotPhase.READY:
            self.ready_count += 1
            heappush(self._ready, (slot.rank, next(self._order), slot))
        elif phase is SlotPhase.HIDDEN:
            heappush(self._hidden, (slot.due_s, next(self._order), slot.turn, slot))

    def first(self) -> Slot | None:
        """The READY slot that comes first; it is not removed."""
        while self._ready:
            rank, _, slot = self._ready[0]
            if slot.phase is SlotPhase.READY and slot.rank == rank:
                return slot
            heappop(self._ready)
        return None

    def promote(self, earliest_s: float) -> None:
        """Let what is due become READY, or be read."""
        while self._hidden and self._hidden[0][0] <= earliest_s:
            _, _, turn, slot = heappop(self._hidden)
            if slot.phase is not SlotPhase.HIDDEN or slot.turn != turn:
                continue
            if slot.must_read:
                self.unread[slot] = None
            else:
                self.enter(slot, SlotPhase.READY)

    def next_due_s(self) -> float:
        """When the next slot is due, on the store's clock; infinity when none is."""
        while self._hidden:
            due_s, _, turn, slot = self._hidden[0]
            if slot.phase is SlotPhase.HIDDEN and slot.turn == turn:
                return due_s
            heappop(self._hidden)
        return inf


# Closed batches: those that were listed and not read, in the order in which they are to be.


class SlotBatches:
    """Closed batches by number, the next one at hand however many there are."""

    def __init__(self, order_of: Callable[[int], int]) -> None:
        self._order_of = order_of
        self._batches: dict[int, ClosedBatch] = {}
        self._order: list[tuple[int, int]] = []
        """Where each comes, and its number."""
        self.uncharted: set[int] = set()
        """Numbers of those whose leases were not listed yet."""

    def __contains__(self, number: object) -> bool:
        return number in self._batches

    def __iter__(self) -> Iterator[ClosedBatch]:
        return iter(list(self._batches.values()))

    def put(self, batch: ClosedBatch) -> None:
        """Put a batch in its place."""
        self._batches[batch.id.number] = batch
        heappush(self._order, self._entry(batch.id.number))
        if not batch.is_charted:
            self.uncharted.add(batch.id.number)

    def pop(self, number: int) -> ClosedBatch | None:
        """Remove a batch and return it, if it is there."""
        self.uncharted.discard(number)
        return self._batches.pop(number, None)

    def first(self) -> ClosedBatch | None:
        """The batch whose turn it is."""
        while self._order:
            batch = self._batches.get(self._order[0][1])
            if batch is not None:
                return batch
            heappop(self._order)
        return None

    def first_few(self, message_count: int) -> list[ClosedBatch]:
        """The batches whose turn it is, as many as hold so many messages; at least one."""
        few: list[ClosedBatch] = []
        while (batch := self.first()) is not None and (not few or message_count > 0):
            few.append(batch)
            message_count -= batch.id.count
            heappop(self._order)
        self._order += [self._entry(batch.id.number) for batch in few]
        heapify(self._order)
        return few

    def sort(self) -> None:
        """Put all of them in their places anew: the order is another."""
        self._order = [self._entry(number) for number in self._batches]
        heapify(self._order)

    def _entry(self, number: int) -> tuple[int, int]:
        return self._order_of(number), number
