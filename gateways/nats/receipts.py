"""Receipts: what is held of one queue, and until when. Pure.

The server forgives too much: it takes an ack after the lease for good, even one for an earlier
delivery of a message that somebody else is handling by now, and confirms all of them alike. So
the end of each lease is kept here, and a receipt is good for one settlement.

| a receipt is | when                                      | and then                            |
|--------------|-------------------------------------------|-------------------------------------|
| held         | received, and its lease is not over       | it may be settled or extended       |
| taken        | a settlement of it is on its way          | a second settlement is refused      |
| held again   | the server did not answer                 |                                     |
| gone         | settled, refused for good, or lease over; | every later use is refused          |
|              | or the server may have forgotten it       |                                     |

A server writes down what it delivered a moment later. One that is killed in that moment gives it
out again at once, to anybody, and would still take the ack of the first. What it did write down has
lost the fractions of its seconds: leases end sooner by that after any restart, and so do deferrals,
which are therefore told again. A deferral is not told again once the message may have come to
another: the server would take it for that one's.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Final

import attrs

from .names import COARSE_S, MAX_DEFERRALS

_numbers: Final = count(1)


def receipt_for(subject: str) -> str:
    """A receipt that no other delivery has. The subject alone would not do: a server that forgot
    a delivery makes the next one under the same.
    """
    return f"{subject}#{next(_numbers):x}"


def subject_of(receipt: str) -> str:
    """Where the server takes the settlement of what was received under a receipt."""
    return receipt.rpartition("#")[0]


@attrs.define(eq=False)
class _Deferral:
    lease: _Lease
    told_at_s: float
    due_at_s: float

    def may_be_told(self, now_s: float, *, since_s: float) -> bool:
        """Whether the message is hidden still: by the deferral, or by its lease if the server may
        have forgotten the deferral.
        """
        is_kept = self.told_at_s < since_s
        hidden_until_s = self.due_at_s if is_kept else min(self.due_at_s, self.lease.ends_at_s)
        return now_s < hidden_until_s - (COARSE_S if is_kept else 0.0)


@attrs.define(eq=False)
class _Lease:
    granted_at_s: float
    ends_at_s: float
    ended_at_s: float
    """Its end before it was last extended; the same as its beginning while it was not."""


class Receipts:
    """The receipts of one queue. Ends come in nearly rising order, so old ones lie in front."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._taken: set[str] = set()
        self._deferrals: dict[str, _Deferral] = {}
        self.handed_back: set[str] = set()
        """Of those held, the ones whose messages were given back untried before."""

    def __len__(self) -> int:
        return len(self._leases)

    def hold(self, receipts: Iterable[tuple[str, float]], *, now_s: float) -> None:
        """Enter what was received, with its lease's end; what nobody settled is forgotten."""
        self._forget_expired(now_s)
        for receipt, ends_at_s in receipts:
            self._leases[receipt] = _Lease(now_s, ends_at_s, now_s)

    def is_held(self, receipt: str, now_s: float) -> bool:
        """Whether its lease is ours, as far as we know."""
        lease = self._leases.get(receipt)
        return lease is not None and lease.ends_at_s > now_s and receipt not in self._taken

    def take(self, receipt: str, now_s: float) -> bool:
        """Take a receipt for a settlement; False when it is not held, or taken already."""
        if not self.is_held(receipt, now_s):
            return False
        self._taken.add(receipt)
        return True

    def give_back(self, receipt: str) -> None:
        """The settlement did not come about: it may be tried again."""
        self._taken.discard(receipt)

    def spend(self, receipt: str) -> None:
        """The message is settled, or no longer ours."""
        self._taken.discard(receipt)
        self.handed_back.discard(receipt)
        self._leases.pop(receipt, None)

    def extend(self, receipt: str, ends_at_s: float, *, now_s: float) -> None:
        """The server granted another end; says nothing of a receipt that is gone meanwhile."""
        lease = self._leases.pop(receipt, None)
        if lease is not None:
            self._leases[receipt] = _Lease(now_s, ends_at_s, lease.ends_at_s)

    def deferred(self, receipt: str, *, due_at_s: float, now_s: float) -> None:
        """The server confirmed a deferral; say it before the receipt is spent."""
        if len(self._deferrals) >= MAX_DEFERRALS:
            del self._deferrals[next(iter(self._deferrals))]
        if (lease := self._leases.get(receipt)) is not None:
            self._deferrals[receipt] = _Deferral(lease, now_s, due_at_s)

    def doubt(self, since_s: float) -> None:
        """Do not count on what was granted since then: a server that was restarted may not
        remember it. What was received is let go of, what was extended ends as it did before, and
        all of it ends sooner by what the server rounds off.
        """
        deferred = [each.lease for each in self._deferrals.values()]
        for lease in (*self._leases.values(), *deferred):
            if lease.granted_at_s >= since_s:
                lease.ends_at_s = min(lease.ends_at_s, lease.ended_at_s)
            lease.ends_at_s -= COARSE_S

    def to_tell_again(self, since_s: float, *, now_s: float) -> list[tuple[str, float]]:
        """The receipts of deferrals that a server which was restarted is to be told again, and
        for how long they last.
        """
        again = {
            receipt: deferral
            for receipt, deferral in self._deferrals.items()
            if deferral.may_be_told(now_s, since_s=since_s)
        }
        for deferral in again.values():
            deferral.told_at_s = now_s
        self._deferrals = again
        return [(receipt, deferral.due_at_s - now_s) for receipt, deferral in again.items()]

    def _forget_expired(self, now_s: float) -> None:
        while self._leases:
            oldest = next(iter(self._leases))
            if self._leases[oldest].ends_at_s > now_s or oldest in self._taken:
                return
            self.spend(oldest)
