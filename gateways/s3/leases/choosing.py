"""Choosing: which message is claimed next, and what has to be known before. No I/O."""

from __future__ import annotations

import attrs

from .catalogue import Catalogue
from .codec import BatchId
from .slots import Slot, SlotPhase


@attrs.frozen
class Chart:
    """List leases, beginning with those of this number."""

    number: int


@attrs.frozen
class Open:
    """Read these batches."""

    batches: list[BatchId]


@attrs.frozen
class Read:
    """Read the leases of these slots."""

    slots: list[Slot]


Need = Chart | Open | Read


class Choosing:
    """Chooses from a catalogue, in the order of its queue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._of = catalogue

    def pick(self, max_count: int, earliest_s: float) -> list[Slot]:
        """Take the next messages, to claim them: CLAIMING from now on."""
        self._of.order.promote(earliest_s)
        picked: list[Slot] = []
        while len(picked) < max_count and (slot := self._next()) is not None:
            self._of.order.enter(slot, SlotPhase.CLAIMING)
            picked.append(slot)
        return picked

    def pick_dead(self, max_attempts: int, earliest_s: float) -> list[Slot]:
        """Take those that have had all their deliveries."""
        self._of.order.promote(earliest_s)
        dead = [
            slot
            for opened in self._of.opened.values()
            if opened.content is not None
            for slot in opened.slots
            if slot.phase is SlotPhase.READY and slot.lease and slot.lease.attempt >= max_attempts
        ]
        for slot in dead:
            self._of.order.enter(slot, SlotPhase.CLAIMING)
        return dead

    def has_next(self, earliest_s: float) -> bool:
        """Whether a pick would find something."""
        self._of.order.promote(earliest_s)
        return self._next() is not None

    def next_number(self, earliest_s: float) -> int | None:
        """The number of the batch that comes next, whether it was read or not."""
        self._of.order.promote(earliest_s)
        slot, closed = self._of.order.first(), self._of.closed.first()
        if closed is not None and (slot is None or self._comes_before(slot)):
            return closed.id.number
        return None if slot is None else slot.id.number

    def needs(self, max_count: int, earliest_s: float) -> Need | None:
        """What has to be read before so many can be picked; None when nothing would help."""
        self._of.order.promote(earliest_s)
        slot = self._next()
        wanted = 1 if self._of.policy.is_strict else max_count - self._of.order.ready_count
        if slot is not None and (wanted <= 0 or self._of.policy.is_strict):
            return None
        uncharted = self._of.closed.uncharted | self._of.contested
        if uncharted:
            return Chart(min(uncharted))
        to_open = self._to_open(wanted)
        if to_open:
            return Open(to_open)
        if slot is None and self._of.order.unread:
            return Read(list(self._of.order.unread))
        return None

    def _next(self) -> Slot | None:
        if self._of.policy.is_strict:
            return self._head()
        slot = self._of.order.first()
        if slot is None:
            return None
        opened = self._of.opened[slot.id.number]
        is_usable = opened.is_charted and opened.content is not None
        return slot if is_usable and not self._comes_before(slot) else None

    def _comes_before(self, slot: Slot) -> bool:
        """Whether a batch that was not read yet comes before a message."""
        closed = self._of.closed.first()
        if closed is None:
            return False
        return self._of.order_of(closed.id.number) <= self._of.order_of(slot.id.number)

    def _head(self) -> Slot | None:
        """The first message that is not done, if it may be claimed and none is in flight."""
        head = self._first_left()
        if head is None or head.phase is not SlotPhase.READY or self._comes_before(head):
            return None
        if any(slot.is_in_flight for each in self._of.opened.values() for slot in each.slots):
            return None
        opened = self._of.opened[head.id.number]
        return head if opened.is_charted and opened.content is not None else None

    def _first_left(self) -> Slot | None:
        number = min(self._of.opened, default=None)
        slots = [] if number is None else self._of.opened[number].slots
        return next((slot for slot in slots if slot.phase is not SlotPhase.DONE), None)

    def _to_open(self, wanted: int) -> list[BatchId]:
        slot = self._first_left() if self._of.policy.is_strict else self._of.order.first()
        if slot is not None:
            opened = self._of.opened[slot.id.number]
            if opened.content is None and slot.phase is SlotPhase.READY:
                return [opened.id]
            if not self._comes_before(slot) and (self._of.policy.is_strict or wanted <= 0):
                return []
        return [closed.id for closed in self._of.closed.first_few(wanted)]
