"""DuckDB: the engine for one machine, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..stores.ledger.rows import COLUMNS
from .engine import Dialect, DuckdbDialect, EngineFailed, Rows
from .queries import in_scope
from .source import ReportScope, Source
from .tables import SNAPSHOT, ValueKind

MEMORY_LIMIT = "3GB"
"""What does not fit is put on the disk."""
_NAMES = [each.name for each in COLUMNS if each.name not in ("version", "time")]


class DuckdbEngine:
    """An `Engine` in this process. Blocking; for one thread."""

    name = "duckdb"

    def __init__(self, connection: Any) -> None:
        self.dialect: Dialect = DuckdbDialect()
        self._connection = connection

    def view(self, name: str, sql: str) -> None:
        self._run(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")

    def keep(self, name: str, sql: str) -> None:
        self._run(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    def rows(self, sql: str) -> Rows:
        found: list[tuple[Any, ...]] = self._run(sql).fetchall()
        return found

    def _run(self, sql: str) -> Any:
        import duckdb

        try:
            return self._connection.execute(sql)
        except duckdb.Error as error:
            raise EngineFailed(str(error)) from error


@contextmanager
def duckdb_engine(source: Source, scope: ReportScope) -> Iterator[DuckdbEngine]:
    """An engine over a source; `ConfigurationError` when DuckDB is not installed."""
    if find_spec("duckdb") is None:
        raise ConfigurationError("duckdb", "not installed", "try: pip install 'pumphouse[report]'")
    import duckdb

    settings: Any = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": str(source.scratch / "duckdb"),
        # The tables are put in order at the end; to keep the files' would cost memory.
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        engine = DuckdbEngine(connection)
        engine.view("every", _every(source))
        engine.view("raw", f"SELECT * FROM every WHERE {in_scope(scope, engine.dialect)}")
        if source.dead_letters is not None:
            engine.view("dead_letters", _dead_letters(source.dead_letters))
        yield engine


def _every(source: Source) -> str:
    paths = ", ".join(map(_quoted, (*source.files, *source.gathered)))
    return (
        f"SELECT epoch_us(time) AS time_us, {', '.join(_NAMES)} "
        f"FROM read_parquet([{paths}], hive_partitioning = false)"
    )


def _dead_letters(path: Path) -> str:
    columns = [
        f"epoch_us({each.name}) AS {each.name.removesuffix('_at')}_us"
        if each.kind is ValueKind.TIME
        else each.name
        for each in SNAPSHOT.columns
    ]
    return f"SELECT {', '.join(columns)} FROM read_parquet({_quoted(path)})"


def _quoted(path: Path) -> str:
    # A name with a star in it is a pattern to DuckDB; brackets turn it into a letter.
    text = "".join(f"[{c}]" if c in "*?[" else c for c in str(path))
    return DuckdbDialect().literal(text)
