"""Results: what came of an entry, as plain values."""

from __future__ import annotations

import attrs

from .entries import Entry
from .session_state import SessionResult


@attrs.frozen
class Taken:
    """A message under a new lease."""

    number: int
    segment: str
    place: int
    attempt: int
    receipt: str
    expires_s: float
    """By the server's time."""


@attrs.frozen
class Sent:
    """A send was accepted, duplicates included; or it came too late for its segment."""

    is_accepted: bool


@attrs.frozen
class Takings:
    """What a receive got."""

    taken: tuple[Taken, ...]


@attrs.frozen
class Refusals:
    """The positions of those whose receipt was not valid."""

    positions: tuple[int, ...]


@attrs.frozen
class Purged:
    """How many messages there were."""

    count: int


@attrs.frozen
class Done:
    """It cannot fail, and there is nothing to tell."""


Result = Sent | Takings | Refusals | Purged | Done | SessionResult


@attrs.frozen(kw_only=True)
class Applied:
    """What came of an entry."""

    entry: Entry
    results: tuple[Result, ...]
    """Of each operation."""
    emptied: tuple[str, ...] = ()
    """Segments with nothing left in them: for the entry's writer to remove."""
    dead: tuple[int, ...] = ()
    """Messages that had their last delivery: for the entry's writer to move."""


@attrs.frozen
class Available:
    """Bounds of what can be taken."""

    messages: int
    receives: int
    """How many receives could get something: each group serves one at a time."""
