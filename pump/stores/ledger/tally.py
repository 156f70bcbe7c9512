"""Tally: what many rows come to, in memory that does not grow with their number.

Tallies of files are made apart and added up. A percentile is within one per cent of the true one;
the longest time is exact.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol

import attrs

from ...percentiles import bucket_at, bucket_of, middle_of
from .rows import LedgerStatus, Row

PROCESSED = LedgerStatus.PROCESSED.value
NO_FAILURES = (PROCESSED, LedgerStatus.REDRIVEN.value)
"""What no list of failures has."""


@attrs.frozen(kw_only=True)
class Query:
    """Which rows count, and how they are counted. Empty choices choose everything."""

    since_us: int = 0
    origin_us: int = 0
    """Where slot 0 of `LedgerTally.slots` begins; not after `since_us`."""
    slot_us: int = 60_000_000
    max_failures: int = 10
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()

    @property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """The values asked for, by column."""
        asked = {
            "queue": self.queues,
            "type": self.types,
            "reason": self.reasons,
            "status": self.statuses,
        }
        return {column: values for column, values in asked.items() if values}


COUNTED = ("time", "type", "status", "reason", "run_s")
"""The columns that `LedgerTally.count` wants."""


@attrs.define
class LedgerTally:
    """Counts, and the last failures."""

    slots: Counter[tuple[int, str]] = attrs.field(factory=Counter)
    """By slot and status."""
    outcomes: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    """By type, status and reason; a reason of "" is none."""
    runs: Counter[tuple[str, int]] = attrs.field(factory=Counter)
    """By type and bucket of the handlers' time."""
    longest_s: dict[str, float] = attrs.field(factory=dict)
    """By type."""
    failures: list[Row] = attrs.field(factory=list)
    """The newest rows that are failures, newest first."""
    skipped: list[tuple[str, str]] = attrs.field(factory=list)
    """What could not be read, and why."""

    @property
    def row_count(self) -> int:
        """All rows that were counted."""
        return self.outcomes.total()

    def add(self, other: LedgerTally) -> None:
        """Count what another one has counted; its failures stay its own."""
        self.slots.update(other.slots)
        self.outcomes.update(other.outcomes)
        self.runs.update(other.runs)
        for type_, longest_s in other.longest_s.items():
            self.saw_run(type_, longest_s)

    def count(self, rows: Sequence[Sequence[Any]], query: Query) -> None:
        """Count rows of `COUNTED`; column by column, which is several times as fast."""
        if not rows:
            return
        times, types, statuses, reasons, runs_s = zip(*rows, strict=True)
        origin_us, slot_us = query.origin_us, query.slot_us
        self.slots.update(
            zip([(time - origin_us) // slot_us for time in times], statuses, strict=True)
        )
        self.outcomes.update(
            zip(types, statuses, [reason or "" for reason in reasons], strict=True)
        )
        runs = [each for each in zip(types, runs_s, strict=True) if each[1] is not None]
        self.runs.update((type_, bucket_of(run_s)) for type_, run_s in runs)
        for type_, run_s in runs:
            if run_s > self.longest_s.get(type_, -1.0):
                self.longest_s[type_] = run_s

    def saw_run(self, type_: str, longest_s: float) -> None:
        """Note the longest time of some runs."""
        self.longest_s[type_] = max(longest_s, self.longest_s.get(type_, longest_s))

    def saw_failures(self, rows: Iterable[Row], most: int) -> None:
        """Keep these, as far as they are among the newest."""
        self.failures = heapq.nlargest(most, (*self.failures, *rows), key=_time_of)

    def percentiles_s(self, type_: str, *shares: float) -> list[float]:
        """The times that these shares of the runs did not exceed."""
        counts = sorted((bucket, n) for (of, bucket), n in self.runs.items() if of == type_)
        total = sum(n for _, n in counts)
        return [self._at(type_, counts, share * total) for share in shares]

    def _at(self, type_: str, counts: list[tuple[int, int]], rank: float) -> float:
        bucket = bucket_at(rank, counts)
        return 0.0 if bucket is None else min(middle_of(bucket), self.longest_s[type_])


def _time_of(row: Row) -> int:
    return row.time


# Tallies of rows from tables and from memory.

_ROWS_AT_ONCE = 10_000
_counted = attrgetter(*COUNTED)


class OutcomesTable(Protocol):
    """What has a table `outcomes`, and SQL as SQLite's."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Any:
        """A cursor of the rows."""


def tally_table(connection: OutcomesTable, query: Query, tally: LedgerTally) -> None:
    """Add what the table `outcomes` holds."""
    where, values = _condition(query)
    found = connection.execute(f"SELECT {', '.join(COUNTED)} FROM outcomes WHERE {where}", values)
    while rows := found.fetchmany(_ROWS_AT_ONCE):
        tally.count(rows, query)
    failures = connection.execute(
        f"SELECT * FROM outcomes WHERE {where} AND status NOT IN (?, ?) ORDER BY time DESC LIMIT ?",
        (*values, *NO_FAILURES, query.max_failures),
    )
    tally.saw_failures(map(Row._make, failures), query.max_failures)


def tally_rows(rows: Iterable[Row], query: Query, tally: LedgerTally) -> None:
    """Add rows that are in memory."""
    wanted = [row for row in rows if _is_wanted(row, query)]
    tally.count([_counted(row) for row in wanted], query)
    failures = (row for row in wanted if row.status not in NO_FAILURES)
    tally.saw_failures(failures, query.max_failures)


def _condition(query: Query) -> tuple[str, list[object]]:
    clauses: list[str] = ["time >= ?"]
    values: list[object] = [query.since_us]
    for column, choices in query.choices.items():
        clauses.append(f"{column} IN ({', '.join('?' * len(choices))})")
        values += choices
    return " AND ".join(clauses), values


def _is_wanted(row: Row, query: Query) -> bool:
    return row.time >= query.since_us and all(
        getattr(row, column) in choices for column, choices in query.choices.items()
    )
