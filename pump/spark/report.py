"""The report's engine on Spark: the same SQL, on as many machines as there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ..report.engine import Dialect, EngineFailed, MakeEngine, Rows, SparkDialect
from ..report.parquet_files import read_arrow
from ..report.queries import in_scope
from ..report.source import ReportScope, Source
from ..report.tables import SNAPSHOT, ValueKind
from ..stores.ledger.rows import COLUMNS
from .session import session_beside

_NAMES = [each.name for each in COLUMNS if each.name not in ("version", "time")]
_FEW_ROWS = 10_000
"""So many are carried in the plan itself."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # The plans are not read, and to write them out takes as long as small queries do.
    "spark.sql.maxPlanStringLength": "1000",
}
_PARTITIONS = "spark.sql.shuffle.partitions"
_BYTES_A_PART = 16 * 1024 * 1024
"""Of the ledger's files, compressed as they are."""
_MAX_PARTS = 200
_GLOB = str.maketrans({each: f"\\{each}" for each in "*?[]{}\\"})


class SparkEngine:
    """An `Engine` in a session. Blocking."""

    name = "spark"

    def __init__(self, session: Any) -> None:
        self.dialect: Dialect = SparkDialect()
        self._session = session

    def view(self, name: str, sql: str) -> None:
        with _translated():
            self._session.sql(sql).createOrReplaceTempView(name)

    def keep(self, name: str, sql: str) -> None:
        with _translated():
            # A result that is only cached carries its whole plan into every query that reads it,
            # and to plan these takes Spark longer than to run them.
            kept = self._session.sql(sql).localCheckpoint()
            if kept.count() <= _FEW_ROWS:
                kept = self._session.createDataFrame(kept.toArrow())
            kept.createOrReplaceTempView(name)

    def rows(self, sql: str) -> Rows:
        with _translated():
            return [tuple(row) for row in self._session.sql(sql).collect()]


def spark_engine(session: Any) -> MakeEngine:
    """What makes engines on a session's cluster; the session itself sees nothing of it.

    The ledger's folder must be at the same path on every worker. Rows that wait in journals are
    read by the driver, and sent.
    """

    @contextmanager
    def make(source: Source, scope: ReportScope) -> Iterator[SparkEngine]:
        with session_beside(session) as own:
            for name, value in {**_SETTINGS, **_partitioning(session, source)}.items():
                own.conf.set(name, value)
            engine = SparkEngine(own)
            with _translated():
                _ledger(own, source).createOrReplaceTempView("ledger_rows")
                if source.dead_letters is not None:
                    _snapshot(own, source.dead_letters).createOrReplaceTempView("snapshot")
            engine.view("every_row", _raw())
            condition = in_scope(scope, engine.dialect)
            engine.view("raw", f"SELECT * FROM every_row WHERE {condition}")
            if source.dead_letters is not None:
                engine.view("dead_letters", _dead_letters())
            yield engine

    return make


def _partitioning(session: Any, source: Source) -> dict[str, str]:
    """As many parts as the ledger is worth, unless the session says how many: Spark's 200 take
    longer to plan and start than a small ledger takes to read.
    """
    context = session.sparkContext
    if context.getConf().contains(_PARTITIONS):
        return {}
    size = sum(path.stat().st_size for path in source.files)
    fitting = max(context.defaultParallelism, -(-size // _BYTES_A_PART))
    return {_PARTITIONS: str(min(fitting, _MAX_PARTS))}


def _ledger(session: Any, source: Source) -> Any:
    gathered = session.createDataFrame(read_arrow(source.gathered))
    if not source.files:
        return gathered
    files = session.read.parquet(*_named(source.files)).select(gathered.columns)
    return files.unionByName(gathered)


def _snapshot(session: Any, path: Path) -> Any:
    return session.createDataFrame(read_arrow([path]))


def _raw() -> str:
    return f"SELECT unix_micros(time) AS time_us, {', '.join(_NAMES)} FROM ledger_rows"


def _dead_letters() -> str:
    columns = [
        f"unix_micros({each.name}) AS {each.name.removesuffix('_at')}_us"
        if each.kind is ValueKind.TIME
        else each.name
        for each in SNAPSHOT.columns
    ]
    return f"SELECT {', '.join(columns)} FROM snapshot"


def _named(paths: Sequence[Path]) -> list[str]:
    # To Spark a name is a pattern; and a cluster's own file system may be another one.
    return [f"file:{str(path.resolve()).translate(_GLOB)}" for path in paths]


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise EngineFailed(str(error).strip().partition("\n")[0]) from error
