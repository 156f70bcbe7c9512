"""Moves: what a step of the state machine decided, for the shell to journal and finish."""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct, field

from pump.outcome import Abandon, Defer

from .record import LeaseBatch, Record
from .session_lock import SessionLock


class Arrival(Struct):
    """Messages about to be stored, without those the de-duplication window refused."""

    records: list[Record] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """De-duplication ids that were admitted for them."""
    forgotten: list[str] = field(default_factory=list)
    """De-duplication ids whose window is over."""


class Return(Struct):
    """A message to be given back: after `delay_s`, counted as an attempt or not."""

    record: Record
    delay_s: float
    is_counted: bool

    @classmethod
    def by(cls, record: Record, action: Defer | Abandon) -> Return:
        """What the action asks for."""
        match action:
            case Defer(delay_s):
                return cls(record, delay_s, True)
            case Abandon():
                return cls(record, 0.0, False)
            case _:
                assert_never(action)


class Detached(Struct):
    """Settlements whose lease was valid, about to be finished."""

    acked: list[Record] = field(default_factory=list)
    returned: list[Return] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    """Positions of the settlements whose receipt was not valid."""
    batches: list[LeaseBatch] = field(default_factory=list)
    """The lease batches they came from; one may be named twice."""

    def records(self) -> list[Record]:
        """All that were detached."""
        return [*self.acked, *(each.record for each in self.returned)]


class Lapse(Struct):
    """Leases that ended without a settlement."""

    batches: list[LeaseBatch] = field(default_factory=list)
    returned: list[Record] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)
    """Those that had their last delivery; they are in limbo until moved."""
    locks: list[SessionLock] = field(default_factory=list)
    """Sessions that ended with theirs."""


class Extension(Struct):
    """Leases that end later now."""

    moved: list[LeaseBatch] = field(default_factory=list)
    """Batches that were extended whole."""
    split: list[LeaseBatch] = field(default_factory=list)
    """New batches, made of the extended part of another."""
    shrunk: list[LeaseBatch] = field(default_factory=list)
    """What the split ones were taken out of."""
    refused: list[int] = field(default_factory=list)
    """Positions of the receipts that were not valid."""
