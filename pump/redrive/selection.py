"""Selection: which dead letters are to be sent, and what they look like taken together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import attrs

from ..errors import ConfigurationError
from .rows import NAMES, SHOWN, columns_in, schema, sync, written

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


# Selecting with DuckDB: SQL on one machine, without a JVM.

_SHOWN = ", ".join(SHOWN)
_ORDER = "coalesce(rejected_at, created_at) NULLS LAST, entry"


class DuckdbSelector:
    """Runs a predicate over the snapshot's file, and lets it see no other."""

    def __init__(self) -> None:
        self._running: Any = None

    def interrupt(self) -> None:
        if (running := self._running) is not None:
            running.interrupt()

    def check(self, where: str) -> None:
        with self._connected() as connection:
            connection.register("dead_letters", schema().empty_table())
            _confine(connection)
            kind = _run(connection, where, f"DESCRIBE SELECT ({where}\n) FROM dead_letters")[0][1]
            if kind != "BOOLEAN":
                said = f"this is no condition, but of type {kind}".replace('"', "")
                raise ConfigurationError("--where", where, unfit(where, said))
            # In other brackets: what breaks out of the ones does not fit the others.
            _run(connection, where, f"SELECT entry FROM dead_letters WHERE (({where}\n))")

    def select(self, snapshot: Path, where: str, limit: int | None, into: Path) -> None:
        chosen = (
            f"SELECT {_SHOWN} FROM dead_letters WHERE (({where}\n)) ORDER BY {_ORDER}"
            f"{'' if limit is None else f' LIMIT {limit}'}"
        )
        snapshot, into = snapshot.absolute(), into.absolute()
        temporary = into.with_name(f"_{into.name}.tmp")
        with self._connected() as connection:
            connection.execute(f"SET temp_directory = {_quoted(into.with_name('_spill.tmp'))}")
            _confine(connection, snapshot, temporary)
            table = f"SELECT * FROM read_parquet({_quoted(snapshot)})"
            _run(connection, where, f"CREATE TEMP VIEW dead_letters AS {table}")
            copied = f"COPY ({chosen}) TO {_quoted(temporary)} (FORMAT parquet)"
            _run(connection, where, copied)
        with written(into):
            sync(temporary)
            os.replace(temporary, into)
            sync(into.parent)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with _connected() as connection:
            self._running = connection
            try:
                yield connection
            finally:
                # Once it is closed, there is nothing to interrupt.
                self._running = None


def _run(connection: Any, where: str, sql: str) -> Any:
    import duckdb

    try:
        if len(connection.extract_statements(sql)) != 1:
            said = "this is more than a condition"
            raise ConfigurationError("--where", where, unfit(where, said))
        return connection.execute(sql).fetchall()
    except duckdb.IOException as error:
        raise ConfigurationError("--run", "", f"{error}; free some disk space") from error
    except duckdb.Error as error:
        said = str(error).split("\n\nLINE ")[0]
        raise ConfigurationError("--where", where, unfit(where, said)) from error


def _connected() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise ConfigurationError(
            "redrive", "duckdb", f"{error}; try: pip install 'pumphouse[report]'"
        ) from error
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _confine(connection: Any, *paths: Path) -> None:
    """Have a predicate reach these files alone: no others, no network, no variable of ours."""
    connection.execute("SET python_enable_replacements = false")
    connection.execute(f"SET allowed_paths = [{', '.join(map(_quoted, paths))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
