"""Delivery order: which available message comes next.

READY messages stand in the deque of fresh ones when they never left it, else in a heap of
offered ones by rank. Members of an ordering group wait in their group, which offers only its
head. The rank is the sequence number, negative for LIFO, so a returned message has its old
place again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from .record import LEASED, READY, EngineSettings, LeaseBatch, LockedSession, OrderingGroup, Record

# Below this many void offers forming the heap anew costs more than it frees.
_WORTH_SWEEPING = 64


class DeliveryOrder:
    """The order of one queue. Knows phases, and changes none."""

    def __init__(self, settings: EngineSettings) -> None:
        self._is_lifo = settings.is_lifo
        self._is_strict = settings.is_strict
        self._fresh: deque[Record] = deque()
        self._offered: list[tuple[int, Record]] = []
        self._groups: dict[str | None, OrderingGroup] = {}
        self._void_count = 0

    def has_candidates(self) -> bool:
        """Whether `pop` could find something; a blocked group's offer may prove it wrong."""
        return bool(self._fresh or self._offered)

    def candidate_count(self) -> int:
        """How many offers there are, void ones included: no more receives can find something."""
        return len(self._fresh) + len(self._offered)

    def append(self, record: Record) -> None:
        """Let a new message join, at the end."""
        if self._is_strict or record.message.group is not None:
            self._join_group(record)
        elif record.phase == READY:
            self._fresh.append(record)

    def pop_fresh(self, max_count: int) -> list[Record]:
        """Take from the front in one go, when no returned or ordered message competes."""
        fresh = self._fresh
        if self._offered or self._is_lifo:
            return []
        if max_count >= len(fresh):
            everything = list(fresh)
            fresh.clear()
            return everything
        popleft = fresh.popleft
        return [popleft() for _ in range(max_count)]

    def pop(self, batch: LeaseBatch) -> Record | None:
        """Take the next message for `batch`, None when none may be delivered."""
        fresh, offered = self._fresh, self._offered
        while offered:
            if fresh and offered[0][0] > (-fresh[-1].seq if self._is_lifo else fresh[0].seq):
                break
            record = heappop(offered)[1]
            record.is_offered = False
            ordering_group = record.ordering_group
            if ordering_group is None:
                return record
            if ordering_group.is_deliverable(record, batch, is_strict=self._is_strict):
                ordering_group.take_head(batch)
                self._offer_successor(ordering_group)
                return record
        if not fresh:
            return None
        return fresh.pop() if self._is_lifo else fresh.popleft()

    def put_back(self, record: Record) -> None:
        """Return a message that was in flight to its old place."""
        ordering_group = record.ordering_group
        if ordering_group is not None:
            ordering_group.put(self._rank(record), record)
            self.release(ordering_group)
        elif record.phase == READY:
            self._offer(self._rank(record), record)

    def make_available(self, record: Record) -> None:
        """Offer a message whose delay is over."""
        if record.ordering_group is None:
            self._offer(self._rank(record), record)
        else:
            self._offer_head(record.ordering_group)

    def release(self, ordering_group: OrderingGroup) -> None:
        """Count one message of the group as no longer in flight."""
        ordering_group.release()
        if ordering_group.is_empty:
            self._groups.pop(ordering_group.key, None)
        else:
            self._offer_head(ordering_group)

    def next_free_group(self) -> str | None:
        """Of the groups that are not in flight, the one whose head comes next, if it is ready.

        Every such head is offered: what is found depends on what is in the queue, and on nothing
        else.
        """
        passed: list[tuple[int, Record]] = []
        found = None
        while self._offered and found is None:
            record = self._offered[0][1]
            ordering_group = record.ordering_group
            if ordering_group is None or ordering_group.key is None:
                passed.append(heappop(self._offered))
            elif ordering_group.is_free_for(record):
                found = ordering_group.key
            else:
                heappop(self._offered)
                record.is_offered = False
        for offer in passed:
            heappush(self._offered, offer)
        return found

    def is_free(self, group: str) -> bool:
        """Whether nothing of a group is in flight."""
        ordering_group = self._groups.get(group)
        return ordering_group is None or not ordering_group.in_flight

    def lock(self, group: str) -> OrderingGroup | None:
        """Count a group as in flight until its `release`; None when some of it is."""
        ordering_group = self._group_of(group)
        if ordering_group.in_flight:
            return None
        ordering_group.in_flight += 1
        return ordering_group

    def take_locked(self, ordering_group: OrderingGroup, max_count: int) -> list[Record]:
        """Take from a group that the caller has locked."""
        taken = ordering_group.take_ready(max_count)
        # With sessions only, no ordinary receive drops the offers that locks made void.
        self._void_count += sum(record.is_offered for record in taken)
        if self._void_count > _WORTH_SWEEPING and 2 * self._void_count > len(self._offered):
            self._sweep_offers()
        return taken

    def rebuild(
        self,
        settings: EngineSettings,
        records: Iterable[Record],
        locks: Iterable[LockedSession] = (),
    ) -> None:
        """Rebuild the order from all messages of the queue, under other settings."""
        self.clear()
        self._is_lifo, self._is_strict = settings.is_lifo, settings.is_strict
        for lock in locks:
            lock.ordering_group = self._group_of(lock.group)
            lock.ordering_group.in_flight += 1
        # Those in flight first, so that no head of a busy group is offered.
        for record in sorted(records, key=lambda r: (r.phase < LEASED, r.seq)):
            record.ordering_group = None
            record.is_offered = False
            self.append(record)

    def clear(self) -> None:
        """Remove every message."""
        self._fresh.clear()
        self._offered.clear()
        self._groups.clear()
        self._void_count = 0

    def _sweep_offers(self) -> None:
        for _, record in self._offered:
            record.is_offered = False
        self._offered = [
            offer
            for offer in self._offered
            if (ordering_group := offer[1].ordering_group) is None
            or ordering_group.is_free_for(offer[1])
        ]
        for _, record in self._offered:
            record.is_offered = True
        heapify(self._offered)
        self._void_count = 0

    def _rank(self, record: Record) -> int:
        return -record.seq if self._is_lifo else record.seq

    def _offer(self, rank: int, record: Record) -> None:
        record.is_offered = True
        heappush(self._offered, (rank, record))

    def _offer_head(self, ordering_group: OrderingGroup) -> None:
        candidate = ordering_group.candidate()
        if candidate is not None:
            self._offer(*candidate)

    def _offer_successor(self, ordering_group: OrderingGroup) -> None:
        # Only for the rest of this receive: as long as the group is in flight, any other
        # receive that meets the offer drops it, and the group's release makes it again.
        if ordering_group.waiting and not self._is_strict:
            rank, record = ordering_group.waiting[0]
            if record.phase == READY and not record.is_offered:
                self._offer(rank, record)

    def _join_group(self, record: Record) -> None:
        record.ordering_group = ordering_group = self._group_of(record.message.group)
        if record.phase >= LEASED:
            ordering_group.in_flight += 1
        else:
            ordering_group.put(self._rank(record), record)
            self._offer_head(ordering_group)

    def _group_of(self, key: str | None) -> OrderingGroup:
        ordering_group = self._groups.get(key)
        if ordering_group is None:
            ordering_group = self._groups[key] = OrderingGroup(key)
        return ordering_group
