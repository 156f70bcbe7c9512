"""Entries: what is committed, as plain data. Nothing in them depends on their reader.

An entry is applied wholly or not at all, its operations in their order. Its times are server time:
what is over is judged by `at_s`, which the store's clock has surely reached, and what is granted
is granted from `at_s + margin_s` on, which it has surely not passed. So no process takes from an
owner what the store's clock still grants it, whichever clock is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

# Operations on sessions, as entries of a log carry them. Who gets a lock is decided by replay.


class Accept(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Lock a group, or for None the next that has a message to give."""

    session: str | None
    lease_s: float


class TakeInSession(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Lease what comes next of a session, until its lock ends."""

    token: str
    max_count: int


class Renew(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Make a lock, and the leases under it, end later."""

    token: str
    lease_s: float


class Release(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Hand back what a session has in flight, uncounted, and let go of it."""

    token: str


SessionOp = Accept | TakeInSession | Renew | Release


class KeptLock(msgspec.Struct, frozen=True, array_like=True):
    """One lock in a snapshot."""

    token: str
    session: str
    expires_s: float


class Lot(msgspec.Struct, frozen=True, array_like=True):
    """Messages of one send. Groups and keys are left out where no message has one."""

    count: int
    delay_s: float = 0.0
    groups: tuple[str | None, ...] = ()
    keys: tuple[str | None, ...] = ()
    """De-duplication ids."""


class SendOperation(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Messages whose bodies are in a segment: all of it, so that it is empty when they are gone."""

    segment: str
    born_s: float
    """Whole seconds of server time, not later than the segment was written: a sweep that may have
    removed it makes the send fail."""
    lots: tuple[Lot, ...]


class Take(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Lease what comes next."""

    max_count: int
    lease_s: float


class HeldReceipts(msgspec.Struct, frozen=True, array_like=True):
    """Receipts: of each, its lease batch (a place in `batches`) and the message's number."""

    batches: tuple[str, ...]
    places: tuple[int, ...]
    numbers: tuple[int, ...]

    def receipts(self) -> list[str]:
        """As they were handed out."""
        batches = self.batches
        pairs = zip(self.places, self.numbers, strict=True)
        return [f"{batches[place]}.{number}" for place, number in pairs]


_MAX_DIGITS = 18


def is_receipt(text: str) -> bool:
    """Whether a text could have been handed out as a receipt."""
    batch, _, number = text.rpartition(".")
    return (
        bool(batch)
        and text.isascii()
        and number.isdigit()
        and len(number) <= _MAX_DIGITS
        and f"{int(number)}" == number
    )


def hold(receipts: Iterable[str]) -> HeldReceipts:
    """Receipts as an operation carries them; each is one by `is_receipt`."""
    batches: dict[str, int] = {}
    places, numbers = [], []
    for receipt in receipts:
        batch, _, number = receipt.rpartition(".")
        places.append(batches.setdefault(batch, len(batches)))
        numbers.append(int(number))
    return HeldReceipts(tuple(batches), tuple(places), tuple(numbers))


class SettleOperation(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Ack, defer or abandon what is leased."""

    held: HeldReceipts
    delays_s: tuple[float | None, ...] = ()
    """Of each, None for an ack, `UNCOUNTED` for an abandon, else a deferral; empty for all acks."""


UNCOUNTED = -1.0


class ExtendOperation(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Make leases end later."""

    held: HeldReceipts
    lease_s: float


class PurgeOperation(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Remove every message."""


class Adopt(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Claim those that had their last delivery and whose claim is over."""


class DeadLettered(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """They are in the dead-letter queue."""

    numbers: tuple[int, ...]


class Configure(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Let the queue be like this from now on; first in every log."""

    is_lifo: bool
    is_strict: bool
    max_receive_count: int | None
    dead_letter_queue: str | None
    deduplication_window_s: float


class Sweep(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """From now on no segment that was written before may be named: the unnamed can be removed."""

    before_s: float


Op = (
    SendOperation
    | Take
    | SettleOperation
    | ExtendOperation
    | PurgeOperation
    | Adopt
    | DeadLettered
    | Configure
    | Sweep
    | SessionOp
)


class CommitEntry(msgspec.Struct, frozen=True, array_like=True):
    """One commit."""

    number: int
    writer: str
    count: int
    """Of this writer's commits, this is the count-th."""
    at_s: float
    margin_s: float
    ops: tuple[Op, ...]

    @property
    def commit(self) -> str:
        """What no other entry is called."""
        return f"{self.writer}.{self.count}"


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Entries that the head no longer holds, in an object of their own."""

    key: str
    first: int
    last: int
    size: int
    """Before it was deflated."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """The state after an entry, in an object of its own."""

    key: str
    number: int
    size: int


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The register: all of the log, by name or in full."""

    log: str
    """Another one when the queue was removed and made again."""
    nonce: str
    number: int
    base: Base | None
    rolled: tuple[Piece, ...]
    recent: tuple[msgspec.Raw, ...]
    """The last entries, packed each."""


class Keep(msgspec.Struct, frozen=True, array_like=True):
    """One message in a snapshot."""

    number: int
    segment: int
    """A place in `Snapshot.segments`."""
    place: int
    sent_at_s: float
    attempt: int
    phase: int
    due_s: float
    group: str | None


class SnapshotLease(msgspec.Struct, frozen=True, array_like=True):
    """One lease batch in a snapshot; a receipt is left out where it follows from the rest."""

    id: str
    owner: str
    expires_s: float
    numbers: tuple[int, ...]
    receipts: tuple[str, ...]


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """The writer that moves a message which had its last delivery, and until when."""

    writer: str
    until_s: float


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A whole replica."""

    number: int
    at_s: float
    next_number: int
    swept_s: float
    settings: Configure
    segments: tuple[str, ...]
    kept: tuple[Keep, ...]
    leases: tuple[SnapshotLease, ...]
    seen: tuple[tuple[str, float], ...]
    writers: tuple[tuple[str, int], ...]
    dead: tuple[tuple[int, Claim], ...]
    locks: tuple[KeptLock, ...] = ()
