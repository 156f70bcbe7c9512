"""Receipts: what is held of one queue, and until when. Pure.

SQS itself forgives too much: deleting twice succeeds, and so does settling a message of a
standard queue whose lease is over and which somebody else may be handling by now. So the end of
each lease is kept here, and a receipt is good for one settlement.

| a receipt is | when                                      | and then                            |
|--------------|-------------------------------------------|-------------------------------------|
| held         | received, and its lease is not over       | it may be settled or extended       |
| taken        | a settlement of it is on its way          | a second settlement is refused      |
| held again   | SQS did not answer, or refused for now    |                                     |
| gone         | settled, refused for good, or lease over  | every later use is refused          |
"""

from __future__ import annotations

from collections.abc import Iterable


class Receipts:
    """The receipts of one queue. Ends come in nearly rising order, so old ones lie in front."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._taken: set[str] = set()

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, receipt: object) -> bool:
        return receipt in self._ends

    def hold(self, receipts: Iterable[str], *, ends_at_s: float, now_s: float) -> None:
        """Enter what was received; what nobody settled in time is forgotten."""
        self._forget_expired(now_s)
        for receipt in receipts:
            self._ends[receipt] = ends_at_s

    def is_held(self, receipt: str, now_s: float) -> bool:
        """Whether its lease is ours, as far as we know."""
        return self._ends.get(receipt, now_s) > now_s

    def take(self, receipt: str, now_s: float) -> bool:
        """Take a receipt for a settlement; False when it is not held, or taken already."""
        if receipt in self._taken or not self.is_held(receipt, now_s):
            return False
        self._taken.add(receipt)
        return True

    def give_back(self, receipt: str) -> None:
        """The settlement did not come about: it may be tried again."""
        self._taken.discard(receipt)

    def spend(self, receipt: str) -> None:
        """The message is settled, or no longer ours."""
        self._taken.discard(receipt)
        self._ends.pop(receipt, None)

    def extend(self, receipt: str, ends_at_s: float) -> None:
        """SQS granted another end; says nothing of a receipt that is gone meanwhile."""
        if self._ends.pop(receipt, None) is not None:
            self._ends[receipt] = ends_at_s

    def _forget_expired(self, now_s: float) -> None:
        while self._ends:
            oldest = next(iter(self._ends))
            if self._ends[oldest] > now_s:
                return
            self.spend(oldest)
