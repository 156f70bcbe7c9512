"""Selecting with DuckDB: SQL on one machine, without a JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from .rows import SHOWN, schema, sync, written
from .selection import unfit

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
