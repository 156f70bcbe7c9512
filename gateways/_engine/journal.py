"""The journal: what an engine must not forget, and the callbacks for when it is written.

The engine changes its memory in the callback of a write, so memory never runs ahead of what
is durable: a send becomes visible, an ack final, a receive handed out, only when written.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from pump.message import Message

from .record import (
    Arrival,
    Detached,
    EngineSettings,
    Extension,
    Lapse,
    LeaseBatch,
    LockedSession,
    Record,
)


class AnsweredRequest(Struct, frozen=True):
    """A remote request whose answer must survive, so that asking again does nothing twice."""

    owner: str
    number: int


class Declared(Struct, frozen=True):
    """A queue was made, or got other settings."""

    settings: EngineSettings


class SentEntry(Struct, frozen=True):
    """Messages were accepted."""

    queue: str
    arrival: Arrival
    window_s: float
    request: AnsweredRequest | None = None


class Leased(Struct, frozen=True):
    """Messages were handed out."""

    queue: str
    batch: LeaseBatch


class Settled(Struct, frozen=True):
    """Messages were acked, deferred or abandoned."""

    queue: str
    detached: Detached
    now_s: float
    request: AnsweredRequest | None = None


class Extended(Struct, frozen=True):
    """Leases end later."""

    queue: str
    extension: Extension


class Lapsed(Struct, frozen=True):
    """Leases ended unsettled; the attempts they counted are kept. Sessions ended with theirs."""

    queue: str
    lapse: Lapse


class Locked(Struct, frozen=True):
    """A session was accepted."""

    queue: str
    lock: LockedSession


class Renewed(Struct, frozen=True):
    """A session's lock ends later, with the leases under it."""

    queue: str
    lock: LockedSession
    extension: Extension


class Unlocked(Struct, frozen=True):
    """A session was closed."""

    queue: str
    lock: LockedSession


class MovedEntry(Struct, frozen=True):
    """A message had its last delivery and becomes `target` in the dead-letter queue."""

    source: Record
    queue: str
    target: Record


class PurgedEntry(Struct, frozen=True):
    """Every message of a queue was removed."""

    queue: str


class Forgotten(Struct, frozen=True):
    """The owner has its answers to all requests below this number."""

    owner: str
    below: int


Entry = (
    Declared
    | SentEntry
    | Leased
    | Settled
    | Extended
    | Lapsed
    | Locked
    | Renewed
    | Unlocked
    | MovedEntry
    | PurgedEntry
    | Forgotten
)
Done = Callable[[Exception | None], None]
"""Called once on the loop: with None when the entry is durable, else with what prevented it."""


class EngineJournal(Protocol):
    """Writes entries in the order given, each wholly or not at all.

    When one fails, all that were waiting behind it fail too: they were decided in the belief
    that it would succeed (a duplicate is only refused because the first one is being stored).
    """

    def write(self, entry: Entry, done: Done) -> Future[None] | None:
        """Take an entry; `done` is called when it is written or has failed, in order.

        Returns None when `done` was called already, else a future that ends after `done`,
        with the same error. Cancelling the future stops nothing.
        """


class Reserve(Protocol):
    """Keeps the last of the room for receives and settlements, so that consumers can make more."""

    def has_room(self, messages: Sequence[Message]) -> bool:
        """Whether messages may be sent, as far as is known."""

    async def require_room(self, messages: Sequence[Message]) -> None:
        """Look again, and raise `StorageFull` when they may not."""


class NullJournal:
    """Forgets everything at once: the memory gateway's."""

    def write(self, entry: Entry, done: Done) -> None:
        done(None)
