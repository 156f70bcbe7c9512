"""Records: a message as its queue holds it, the batches it is handed out in, queue settings."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any, assert_never

import attrs
from msgspec import Struct, field

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError
from pump.message import Message
from pump.outcome import Abandon, Defer
from pump.subscription import QueueSpec

from .._kit.queues import check_redrive

# Queue settings: what a `QueueSpec` means to this engine, validated.

DEDUPLICATION_WINDOW = "deduplication_window"
DEFAULT_WINDOW_S = 300.0


@attrs.frozen(kw_only=True)
class EngineSettings:
    """How one queue behaves. Changing them while messages are in the queue is allowed."""

    name: str
    is_lifo: bool = False
    is_strict: bool = False
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    deduplication_window_s: float = DEFAULT_WINDOW_S

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> EngineSettings:
        """Translate a spec; `ConfigurationError` names the field that cannot work."""
        if not spec.name.strip():
            raise ConfigurationError("QueueSpec.name", spec.name, "name the queue")
        if spec.ordering_guarantee and spec.ordering is OrderingMode.LIFO:
            raise ConfigurationError(
                "QueueSpec.ordering_guarantee",
                True,
                "newest-first has no order to guarantee; use FIFO, or drop the guarantee",
            )
        check_redrive(spec)
        return cls(
            name=spec.name,
            is_lifo=spec.ordering is OrderingMode.LIFO,
            is_strict=spec.ordering_guarantee,
            max_receive_count=spec.max_receive_count,
            dead_letter_queue=spec.dead_letter_queue if spec.max_receive_count else None,
            deduplication_window_s=_window_s(dict(spec.options)),
        )

    def differences(self, other: EngineSettings) -> str:
        """Say in words where `other` departs from these; empty when they are equal."""
        ours, theirs = attrs.asdict(self), attrs.asdict(other)
        return ", ".join(
            f"{name} is {ours[name]!r}, asked for {theirs[name]!r}"
            for name in ours
            if ours[name] != theirs[name]
        )


def is_bare(spec: QueueSpec) -> bool:
    """Whether a spec only asks that the queue exists, as that of a rejection target does."""
    return spec == QueueSpec(name=spec.name)


def _window_s(options: dict[str, Any]) -> float:
    window = options.pop(DEDUPLICATION_WINDOW, DEFAULT_WINDOW_S)
    if options:
        raise ConfigurationError(
            "QueueSpec.options",
            sorted(options),
            f"this gateway knows only {DEDUPLICATION_WINDOW!r} (seconds, or a timedelta)",
        )
    if isinstance(window, timedelta):
        return window.total_seconds()
    if isinstance(window, bool) or not isinstance(window, int | float) or window < 0:
        raise ConfigurationError(
            f"QueueSpec.options[{DEDUPLICATION_WINDOW!r}]", window, "use seconds, 0 for none"
        )
    return float(window)


class Phase(IntEnum):
    """Where in its life a message is.

    READY → LEASED by a receive. LEASED → LIMBO when a settlement is being written; LIMBO → gone
    (ack, or moved to the dead-letter queue), → READY or DELAYED (defer, abandon), or back →
    LEASED when the write failed. LEASED → READY or LIMBO (redrive) by expiry. DELAYED → READY
    by time.
    """

    READY = 0
    DELAYED = 1
    LEASED = 2
    LIMBO = 3


# Plain ints: an enum member costs a dictionary look-up for each use in the hot path.
READY = int(Phase.READY)
DELAYED = int(Phase.DELAYED)
LEASED = int(Phase.LEASED)
LIMBO = int(Phase.LIMBO)


@attrs.define(eq=False)
class Record:
    """One message in a queue. Positional and slotted: a million of these are made a second."""

    seq: int
    """Its place: unique in the broker, growing with each send, kept through every return."""
    message: Message = attrs.field(repr=False)
    sent_at_s: float
    ordering_group: OrderingGroup | None = attrs.field(default=None, repr=False)
    """The ordering group it belongs to, None when nothing orders it."""
    attempt: int = 0
    phase: int = READY
    due_s: float = 0.0
    """When a DELAYED one becomes READY."""
    receipt: str = attrs.field(default="", repr=False)
    batch: LeaseBatch | None = attrs.field(default=None, repr=False)
    is_offered: bool = False
    """Whether it stands in the heap of candidates."""


@attrs.define(eq=False)
class LeaseBatch:
    """What one receive handed out: one owner, one expiry, however many messages.

    Leases are kept by batch because they are granted and mostly extended by batch: the cost of
    an expiry, in memory and on disk, is shared by all members.
    """

    id: str
    owner: str
    expires_s: float
    request: int | None = None
    """The number of the remote request that asked for it, to answer it once more."""
    members: dict[int, Record] = attrs.field(factory=dict, repr=False)
    """What is still leased, by sequence number."""
    lock: LockedSession | None = attrs.field(default=None, repr=False)
    """The session that received it, if one did."""


# Ordering groups: the messages that must follow one another.
#
# It is a message group; in a strict queue, the ungrouped messages form one as well. Only
# the head of an idle group is a candidate for delivery. The head is whichever member comes next
# in the queue's order, hidden or not: a delayed or retried head blocks its group.


@attrs.define(eq=False)
class OrderingGroup:
    """One chain of messages: those waiting, in order, and how many are in flight."""

    key: str | None = None
    waiting: list[tuple[int, Record]] = attrs.field(factory=list, repr=False)
    in_flight: int = 0
    batch: LeaseBatch | None = attrs.field(default=None, repr=False)
    """The receive that took the last one; it alone may take more while some are in flight."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing refers to it any more."""
        return not self.waiting and not self.in_flight

    def candidate(self) -> tuple[int, Record] | None:
        """The head with its rank, when it may be delivered now and is not offered yet."""
        if self.in_flight or not self.waiting:
            return None
        head = self.waiting[0]
        return head if head[1].phase == READY and not head[1].is_offered else None

    def is_free_for(self, record: Record) -> bool:
        """Whether `record` is the head, ready, and nothing of the group is in flight."""
        return not self.in_flight and self.has_ready() and self.waiting[0][1] is record

    def is_deliverable(self, record: Record, batch: LeaseBatch, *, is_strict: bool) -> bool:
        """Whether `record` is the head and this receive may take it."""
        if not self.waiting or self.waiting[0][1] is not record or record.phase != READY:
            return False
        return not self.in_flight or (self.batch is batch and not is_strict)

    def take_head(self, batch: LeaseBatch) -> None:
        """Count the head as in flight for `batch`."""
        heappop(self.waiting)
        self.in_flight += 1
        self.batch = batch

    def has_ready(self) -> bool:
        """Whether the head is ready."""
        return bool(self.waiting) and self.waiting[0][1].phase == READY

    def take_ready(self, max_count: int) -> list[Record]:
        """Count those that come next as in flight, up to one that is not ready: for an owner
        that has the group locked.
        """
        taken: list[Record] = []
        while len(taken) < max_count and self.has_ready():
            taken.append(heappop(self.waiting)[1])
        self.in_flight += len(taken)
        return taken

    def put(self, rank: int, record: Record) -> None:
        """Put a new or a returned record in its place."""
        heappush(self.waiting, (rank, record))

    def release(self) -> None:
        """Count one as no longer in flight."""
        self.in_flight -= 1
        if not self.in_flight:
            self.batch = None


# The lock of a session: one group of a queue, for one owner, until a time.
#
# It is fenced by what it hands out: a receipt of a session is valid for exactly as long as its
# lock, for both end together, and the next lock hands out new ones.


@attrs.define(eq=False)
class LockedSession:
    """One session, from its acceptance until its lock is released or has run out."""

    id: str
    group: str
    owner: str
    expires_s: float
    request: int | None = None
    """The number of the remote request that asked for it, to answer it once more."""
    ordering_group: OrderingGroup = attrs.field(factory=OrderingGroup, repr=False)
    """The group's, in which the lock counts as one more in flight."""
    parts: list[LeaseBatch] = attrs.field(factory=list, repr=False)
    """What was received under it, by receive; some may be settled since."""
    is_held: bool = True

    def unsettled(self) -> list[LeaseBatch]:
        """The receives of which something is not settled."""
        self.parts = [part for part in self.parts if part.members]
        return self.parts

    def add(self, part: LeaseBatch) -> None:
        """Count what a receive of this session took, or a part of it that has its own end."""
        part.lock = self
        self.unsettled().append(part)

    def take_back(self, part: LeaseBatch) -> None:
        """Count a part again whose settlement could not be written: as it had nothing in it, a
        renewal may have passed it by.
        """
        if self.is_held and not part.members:
            part.expires_s = self.expires_s
            self.parts = [*(each for each in self.parts if each is not part), part]

    def receipts(self) -> list[str]:
        """Of all that is not settled, in the order it was received."""
        return [record.receipt for part in self.unsettled() for record in part.members.values()]


# Transition results: what a step of the state machine decided, for the shell to journal and finish.


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
    locks: list[LockedSession] = field(default_factory=list)
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
