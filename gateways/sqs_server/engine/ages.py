"""Ages: which messages are past their queue's retention, without looking at all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from math import inf

from .record import LIMBO, Record

_WORTH_COMPACTING = 64


class Ages:
    """Finds the oldest of a queue's messages.

    Messages come in the order they were sent, so the oldest are the first in `records`; only
    those that a redrive brought keep an older time, and are listed apart.
    """

    def __init__(self, records: Mapping[int, Record]) -> None:
        self._records = records
        self.latest_s = -inf
        """When the last message in order was sent: whoever adds one keeps this up to date."""
        self._elders: list[tuple[float, int]] = []

    def note_elder(self, record: Record) -> None:
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

    def sent_before(self, cutoff_s: float) -> list[Record]:
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

    def _elders_before(self, cutoff_s: float) -> Iterable[Record]:
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
