"""Entries: what must not be forgotten, and the callbacks for when it is written.

The engine changes its memory in the callback of a write, so memory never runs ahead of what is
durable: a send becomes visible, a delete final, a moved message received, only when written.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..._sqlite.group_commit import Done
from ..model import NewMessage, QueueId
from ..settings import SqsQueueSettings
from .record import NewMessages, SqsRecord, TimedHold

if TYPE_CHECKING:
    from .engine import SqsEngine
    from .record import MoveStatus, MoveTask


class Reserved(msgspec.Struct, frozen=True):
    """Numbers below this one may be in use."""

    below: int


class Created(msgspec.Struct, frozen=True):
    """A queue was made."""

    number: int
    settings: SqsQueueSettings


class Configured(msgspec.Struct, frozen=True):
    """A queue got other settings."""

    number: int
    settings: SqsQueueSettings
    delays: Sequence[tuple[SqsRecord, float]] = ()
    """Messages that are delayed otherwise by it, each until this Unix time, zero for no longer."""


class StoredContent(msgspec.Struct, frozen=True):
    """Where all that is, or is being, written of a queue is found, without searching the
    whole file.
    """

    number: int
    records: Collection[SqsRecord]
    """Its messages that are written, oldest first."""
    settled: int
    """What is being written has higher numbers, and there is little else that has."""


class QueueRemoved(msgspec.Struct, frozen=True):
    """A queue was deleted, with all it had."""

    content: StoredContent
    address: QueueId


class MessagesSent(msgspec.Struct, frozen=True):
    """Messages were accepted."""

    number: int
    arrival: NewMessages
    unix_offset_s: float
    """What makes a Unix time of the clock's."""


class Counted(msgspec.Struct, frozen=True):
    """Messages were received, or a receive was undone."""

    records: Sequence[SqsRecord]


class Deleted(msgspec.Struct, frozen=True):
    """Messages were deleted, or their retention has ended."""

    records: Sequence[SqsRecord]


class MessagesMoved(msgspec.Struct, frozen=True):
    """Messages become others, in another queue."""

    pairs: Sequence[tuple[SqsRecord, int, SqsRecord]]
    """Each as it was, the number of the queue it goes to, and what it is there."""
    task: MoveTask | None = None
    """The task that moves them, with its progress as it will be."""
    moved: int = 0
    has_new_bodies: bool = False
    """Whether what is stored of the bodies is not what it should be."""


class QueuePurged(msgspec.Struct, frozen=True):
    """Every message of a queue was removed."""

    content: StoredContent


class Tasked(msgspec.Struct, frozen=True):
    """A move task began, and others, long over, are forgotten."""

    task: MoveTask
    forgotten: Sequence[MoveTask] = ()


class TaskEndedEntry(msgspec.Struct, frozen=True):
    """A move task ended."""

    task: MoveTask
    status: MoveStatus
    reason: str | None = None


Entry = (
    Reserved
    | Created
    | Configured
    | QueueRemoved
    | MessagesSent
    | Counted
    | Deleted
    | MessagesMoved
    | QueuePurged
    | Tasked
    | TaskEndedEntry
)


class Store(Protocol):
    """Writes entries in the order given, each wholly or not at all.

    When one fails, all that were waiting behind it fail too: they were decided in the belief
    that it would succeed (a duplicate is only refused because the first one is being stored).
    """

    async def open(self, engine: SqsEngine) -> None:
        """Get hold of the storage and fill the engine with what it says."""

    def write(self, entry: Entry, done: Done) -> Future[None] | None:
        """Take an entry; `done` is called when it is written or has failed, in order.

        Returns None when `done` was called already, else a future that ends after `done`,
        with the same error. Cancelling the future stops nothing.
        """

    def has_room(self, messages: Sequence[NewMessage]) -> bool:
        """Whether messages may be sent, as far as is known: the last of the room is for receives
        and deletions, so that consumers can make more.
        """

    async def require_room(self, messages: Sequence[NewMessage]) -> None:
        """Look again, and raise `StorageFull` when they may not."""

    def note_receive(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        """Keep for after a crash that a client has messages in flight; never raises, never waits.

        `offset_s` makes a Unix time of the clock's.
        """

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        """The same after the visibility of messages was changed."""

    async def aclose(self, *, frees: bool = True) -> None:
        """Write what was given, forget what is in flight if it `frees` that, and let go
        of the storage.
        """


class NullStore:
    """Forgets everything at once: for tests, and for servers that need to keep nothing."""

    async def open(self, engine: SqsEngine) -> None:
        """Nothing to recover."""

    def write(self, entry: Entry, done: Done) -> None:
        done(None)

    def has_room(self, messages: Sequence[NewMessage]) -> bool:
        return True

    async def require_room(self, messages: Sequence[NewMessage]) -> None:
        """There always is."""

    def note_receive(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        """No crash leaves anything in flight."""

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        """The same."""

    async def aclose(self, *, frees: bool = True) -> None:
        """Nothing to let go of."""
