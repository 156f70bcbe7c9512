"""Tallies of rows from SQLite and from memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from operator import attrgetter

from .schema import Row
from .tally import COUNTED, NO_FAILURES, Query, Tally

_ROWS_AT_ONCE = 10_000
_counted = attrgetter(*COUNTED)


def tally_table(connection: sqlite3.Connection, query: Query, tally: Tally) -> None:
    """Add what the table `outcomes` of this connection holds."""
    where, values = _condition(query)
    found = connection.execute(f"SELECT {', '.join(COUNTED)} FROM outcomes WHERE {where}", values)
    while rows := found.fetchmany(_ROWS_AT_ONCE):
        tally.count(rows, query)
    failures = connection.execute(
        f"SELECT * FROM outcomes WHERE {where} AND status NOT IN (?, ?) ORDER BY time DESC LIMIT ?",
        (*values, *NO_FAILURES, query.max_failures),
    )
    tally.saw_failures(map(Row._make, failures), query.max_failures)


def tally_rows(rows: Iterable[Row], query: Query, tally: Tally) -> None:
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
