"""The line: which message is claimed next, and which are to be looked at when."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf

from .slots import Phase, Slot


class Line:
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
        """Due, and to be read before anyone knows more."""

    def tick(self) -> int:
        """The turn of a change that happens now."""
        self.turn += 1
        return self.turn

    def enter(self, slot: Slot, phase: Phase) -> None:
        """Change a slot's phase; whatever else has changed is set before."""
        if slot.phase is Phase.READY and slot.turn:
            self.ready_count -= 1
        self.unread.pop(slot, None)
        slot.turn = self.tick()
        slot.phase = phase
        if phase is Phase.READY:
            self.ready_count += 1
            heappush(self._ready, (slot.rank, next(self._order), slot))
        elif phase is Phase.HIDDEN:
            heappush(self._hidden, (slot.due_s, next(self._order), slot.turn, slot))

    def first(self) -> Slot | None:
        """The READY slot that comes first; it stays in line."""
        while self._ready:
            rank, _, slot = self._ready[0]
            if slot.phase is Phase.READY and slot.rank == rank:
                return slot
            heappop(self._ready)
        return None

    def promote(self, earliest_s: float) -> None:
        """Let what is due become READY, or be read."""
        while self._hidden and self._hidden[0][0] <= earliest_s:
            _, _, turn, slot = heappop(self._hidden)
            if slot.phase is not Phase.HIDDEN or slot.turn != turn:
                continue
            if slot.must_read:
                self.unread[slot] = None
            else:
                self.enter(slot, Phase.READY)

    def next_due_s(self) -> float:
        """When the next slot is due, on the store's clock; infinity when none is."""
        while self._hidden:
            due_s, _, turn, slot = self._hidden[0]
            if slot.phase is Phase.HIDDEN and slot.turn == turn:
                return due_s
            heappop(self._hidden)
        return inf
