"""Receipts: what is in flight of one queue, and until when. Pure.

The server takes an ack after the lease for good, even one for an earlier delivery of a message that
another consumer is handling by now, and confirms all of them alike. So leases are kept here.

A server writes down what it delivered a moment later. One that is killed in that moment gives it
out again at once, to any consumer, and would still take the ack of the first. What it wrote has
lost the fractions of its seconds: leases end sooner by that after any restart, and so do deferrals,
which are therefore told again. A deferral is not told again once the message may have come to
another: the server would take it for that one's.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import attrs

from .._kit.leases import Lease, Leases
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
    lease: NatsLease
    told_at_s: float
    due_at_s: float

    def may_be_told(self, now_s: float, *, since_s: float) -> bool:
        """Whether the message is hidden still: by the deferral, or by its lease if the server may
        have forgotten the deferral.
        """
        is_kept = self.told_at_s < since_s
        hidden_until_s = self.due_at_s if is_kept else min(self.due_at_s, self.lease.ends_at_s)
        return now_s < hidden_until_s - (COARSE_S if is_kept else 0.0)


class NatsLease(Lease, eq=False, kw_only=True):
    """The lease of one delivery."""

    granted_at_s: float
    ended_at_s: float
    """Its end before it was last extended; the same as its beginning while it was not."""
    is_handed_back: bool = False
    """Whether its message was given back untried before."""


class Receipts(Leases[NatsLease]):
    """The receipts of one queue."""

    def __init__(self) -> None:
        super().__init__()
        self._deferrals: dict[str, _Deferral] = {}

    def enter(
        self, receipt: str, ends_at_s: float, *, now_s: float, is_handed_back: bool = False
    ) -> None:
        """Hold what was received just now."""
        self.hold(
            receipt,
            NatsLease(
                ends_at_s, granted_at_s=now_s, ended_at_s=now_s, is_handed_back=is_handed_back
            ),
        )

    def prolong(self, receipt: str, ends_at_s: float, *, now_s: float) -> None:
        """Extend, and remember what to fall back to if the server forgets it."""
        if (lease := self._held.get(receipt)) is not None:
            lease.granted_at_s, lease.ended_at_s = now_s, lease.ends_at_s
            self.extend(receipt, ends_at_s)

    def deferred(self, receipt: str, *, due_at_s: float, now_s: float) -> None:
        """The server confirmed a deferral; say it before the receipt is spent."""
        if len(self._deferrals) >= MAX_DEFERRALS:
            del self._deferrals[next(iter(self._deferrals))]
        if (lease := self._held.get(receipt)) is not None:
            self._deferrals[receipt] = _Deferral(lease, now_s, due_at_s)

    def doubt(self, since_s: float) -> None:
        """Do not count on what was granted since then: a server that was restarted may not
        remember it. What was received is dropped, what was extended ends as it did before, and
        all of it ends sooner by what the server rounds off.
        """
        deferred = [each.lease for each in self._deferrals.values()]
        for lease in (*self._held.values(), *deferred):
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
