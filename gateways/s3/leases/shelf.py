"""The shelf: batches that were listed and not read, in the order in which they are to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from .slots import ClosedBatch


class Shelf:
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
        """Take a batch off the shelf, if it is there."""
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
