"""Selection: which dead letters are to be sent, and what they look like taken together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import attrs

from .rows import NAMES, SHOWN, columns_in

EXAMPLES = 5


class Selector(Protocol):
    """Runs the predicate: DuckDB on one machine, Spark on many. Blocking.

    Both methods raise `ConfigurationError` for a predicate that cannot be one.
    """

    def check(self, where: str) -> None:
        """See that it is a predicate over the columns, before anything is touched."""

    def select(self, snapshot: Path, where: str, limit: int | None, into: Path) -> None:
        """Write `columns.SHOWN` of those it holds for; nothing is at `into` before it is whole.

        With a limit, the longest rejected ones first.
        """

    def interrupt(self) -> None:
        """Have what runs in another thread fail soon: it is not waited for any more."""


@attrs.frozen(kw_only=True)
class Picture:
    """What a selection holds, for a person to look at."""

    count: int = 0
    groups: tuple[tuple[str, str, int], ...] = ()
    """Type, reason and number, the most first."""
    oldest: datetime | None = None
    """Rejected at, or made at where that is unknown."""
    newest: datetime | None = None
    examples: tuple[dict[str, Any], ...] = ()


def entries_in(selection: Path) -> tuple[Mapping[str, int], int]:
    """The entries, each with the number of dead letters it stands for, and that of all: where the
    snapshot saw no broker's id, two copies of one dead letter are one entry.
    """
    entries: dict[str, int] = {}
    for rows in columns_in(selection, ["entry"]):
        for row in rows:
            entries[row["entry"]] = entries.get(row["entry"], 0) + 1
    return entries, sum(entries.values())


def picture_of(selection: Path, but: Container[str] = frozenset()) -> Picture:
    """Look at a selection; `but` are entries that no longer count."""
    groups: Counter[tuple[str, str]] = Counter()
    examples: list[dict[str, Any]] = []
    moments: list[datetime] = []
    for rows in columns_in(selection, SHOWN):
        left = [row for row in rows if row["entry"] not in but]
        groups.update((row["type"] or "", row["reason"] or "") for row in left)
        examples += left[: EXAMPLES - len(examples)]
        known = [moment for row in left if (moment := row["rejected_at"] or row["created_at"])]
        moments += [min(known), max(known)] if known else []
    return Picture(
        count=groups.total(),
        groups=tuple((*group, count) for group, count in groups.most_common()),
        oldest=min(moments, default=None),
        newest=max(moments, default=None),
        examples=tuple(examples),
    )


def unfit(where: str, why: str) -> str:
    """The remedy for a predicate that the engine does not take."""
    said = " ".join(why.split())[:300].rstrip(".!")
    return f"{said}. It is a condition in SQL, such as type = 'PlaceOrder'; columns: {NAMES}"
