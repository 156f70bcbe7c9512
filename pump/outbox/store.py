"""What an outbox is to the rest: where posts are written, and where a relay takes them from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from ..clock import Clock

if TYPE_CHECKING:
    from .transactions import Writer

MAX_BYTES: Final = 8 * 1024 * 1024
"""Of messages in one statement or batch, unless it is one."""


Told = Callable[[str | None], object]
"""What a relay wants called about commits."""


@attrs.frozen(kw_only=True)
class Posted:
    """A message on its way into the outbox: ready to be sent, with its checksum."""

    destination: str
    id: str
    packed: bytes = attrs.field(repr=False)
    group: str | None = None
    delay_s: float = 0.0

    @property
    def lane(self) -> int | None:
        """What has an order of its own; two groups that share one are in order together."""
        if self.group is None:
            return None
        digest = blake2b(self.group.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


@attrs.frozen(kw_only=True)
class WaitingRow:
    """A row of the outbox: a message that its destination has not confirmed."""

    position: int
    """Rows of one transaction have the order of their posts."""
    id: str
    lane: int | None
    attempts: int
    """How many times it alone was refused, for a reason that may not last."""
    age_s: float
    delay_s: float
    """What is left of its delay."""
    packed: bytes = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Relayed:
    """What became of the rows of one batch; those it does not name wait on as they were."""

    sent: Sequence[WaitingRow] = ()
    refused: Sequence[WaitingRow] = ()
    """Each alone, for a reason that may not last: counted, and tried again."""
    set_aside: Sequence[tuple[WaitingRow, str]] = ()
    """Each with its reason: no attempt could send them."""
    fault: Exception | None = None
    """Why the rest was not sent: the destination's trouble, not the messages'."""
    is_partial: bool = False
    """Whether the rest was not tried, though nothing speaks against it."""


class RowBatch(Protocol):
    """Rows of one destination that no other relay has meanwhile."""

    @property
    def rows(self) -> Sequence[WaitingRow]:
        """In their order."""

    @property
    def is_all(self) -> bool:
        """Whether there were no others."""

    async def settle(self, relayed: Relayed) -> None:
        """Note what became of them. It counts when the block of the batch has ended without error:
        until then, and after a crash, another relay may send them again.
        """


@attrs.frozen(kw_only=True)
class RowsWanted:
    """Which rows a relay asks for."""

    destination: str
    max_count: int
    without: Sequence[int] = ()
    """Positions of rows that rest after a refusal."""
    without_lanes: Sequence[int] = ()
    """Lanes that wait for one of them."""
    ids: Sequence[str] | None = None
    """Only the rows of these messages, and all of their lanes."""


@attrs.frozen(kw_only=True)
class DestinationStats:
    """What waits for one destination."""

    destination: str
    waiting: int
    oldest_age_s: float | None
    set_aside: int


@attrs.frozen(kw_only=True)
class SetAside:
    """A row that no attempt could send, kept until it is retried or dropped."""

    position: int
    id: str
    destination: str
    reason: str
    attempts: int
    posted_at_s: float
    set_aside_at_s: float


class RelaySource(Protocol):
    """What a relay needs of an outbox."""

    @property
    def hears(self) -> bool:
        """Whether all commits are told of, so that looking is for what was missed only."""

    @property
    def max_taken(self) -> int | None:
        """How many destinations can be taken at once; None for any number."""

    async def watch(self, told: Told) -> None:
        """From now on, call `told`, as those before it, with each destination for which rows were
        committed, or with None when there may be some for any. Again, it does nothing.
        """

    def unwatch(self, told: Told) -> None:
        """Call it no more."""

    async def destinations(self) -> Sequence[str]:
        """Those for which rows wait."""

    def taken(self, wanted: RowsWanted) -> AbstractAsyncContextManager[RowBatch | None]:
        """The first rows of a destination, for this relay alone until the block ends; None while
        another relay has that destination.
        """

    async def prune(self) -> None:
        """Forget what was sent longer ago than is kept."""


class OutboxAdmin(Protocol):
    """Looks after an outbox."""

    async def stats(self) -> Sequence[DestinationStats]:
        """Every destination with rows, by name."""

    async def set_aside(self, *, max_count: int = 1_000) -> Sequence[SetAside]:
        """What was set aside, oldest first."""

    async def retry(self, ids: Sequence[str] | None) -> int:
        """Have rows that were set aside wait again, behind what waits now: all, or those of these
        messages.
        """

    async def drop(self, ids: Sequence[str] | None) -> int:
        """Forget rows that were set aside."""

    async def find(self, ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """The destinations of those messages that wait, and which of them wait for each."""


class Outbox(RelaySource, OutboxAdmin, Protocol):
    """Messages that wait in the user's own database. Every method that waits may raise
    `GatewayError`; nothing is lost by it.
    """

    @property
    def name(self) -> str:
        """The database, without its secrets."""

    def writer(self, transaction: object) -> Writer:
        """What writes posts in the user's transaction; `ConfigurationError` where it is none."""

    async def open(self, clock: Clock) -> None:
        """Make or check the tables, as was asked for."""

    async def aclose(self) -> None:
        """Let go of every connection; `watch` tells no more."""
