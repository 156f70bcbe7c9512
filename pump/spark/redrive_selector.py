"""Selecting with Spark SQL, for a redrive on Spark."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import (
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..errors import ConfigurationError
from ..redrive.arrow import sync, written
from ..redrive.columns import COLUMNS, SHOWN, Kind
from ..redrive.selection import unfit

_TYPES = {
    Kind.TEXT: StringType(),
    Kind.INTEGER: LongType(),
    Kind.TIME: TimestampType(),
    Kind.MAP: MapType(StringType(), StringType()),
}
_SQL_ON_FILES = "spark.sql.runSQLOnFiles"
_CALLS_JAVA = re.compile(r"\b(reflect|java_method|try_reflect)\(", re.IGNORECASE)
_SCHEMA = StructType([StructField(each.name, _TYPES[each.kind]) for each in COLUMNS])


class SparkSelector:
    """Runs a predicate over a snapshot that all executors see."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def interrupt(self) -> None:
        self._spark.sparkContext.cancelAllJobs()

    def check(self, where: str) -> None:
        empty = self._spark.createDataFrame([], _SCHEMA)
        with _explained(where), self._confined():
            condition = functions.expr(f"({where}\n)")
            kind = empty.select(condition).schema[0].dataType.simpleString()
            if kind != "boolean":
                said = f"this is no condition, but of type {kind}"
                raise ConfigurationError("--where", where, unfit(where, said))
            # What may be asked for may not be a condition, such as an aggregate.
            plan = empty.where(condition)._jdf.queryExecution().analyzed().toString()
            if _CALLS_JAVA.search(plan):
                said = "a condition must not call methods of Java"
                raise ConfigurationError("--where", where, unfit(where, said))

    def select(self, snapshot: Path, where: str, limit: int | None, into: Path) -> None:
        temporary = into.with_name(f"_{into.name}.tmp")
        with _explained(where), self._confined():
            found = self._spark.read.schema(_SCHEMA).parquet(snapshot.absolute().as_uri())
            chosen = found.where(f"({where}\n)")
            if limit is not None:
                since = functions.coalesce("rejected_at", "created_at").asc_nulls_last()
                chosen = chosen.orderBy(since, "entry").limit(limit)
            chosen.select(*SHOWN).write.parquet(temporary.absolute().as_uri())
        with written(into):
            os.replace(temporary, into)
            sync(into.parent)

    @contextmanager
    def _confined(self) -> Iterator[None]:
        """A condition reaches no file: it may be somebody else's text."""
        before = self._spark.conf.get(_SQL_ON_FILES)
        self._spark.conf.set(_SQL_ON_FILES, "false")
        try:
            yield
        finally:
            self._spark.conf.set(_SQL_ON_FILES, before)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn Spark's errors about a predicate into ours."""
    # PySpark logs what it raises, with all of the JVM's stack.
    said_by_pyspark = logging.getLogger("SQLQueryContextLogger")
    was_disabled, said_by_pyspark.disabled = said_by_pyspark.disabled, True
    try:
        yield
    except PySparkException as error:
        said = str(error).split("SQLSTATE")[0].split("== SQL")[0].strip()
        raise ConfigurationError("--where", where, unfit(where, said)) from error
    finally:
        said_by_pyspark.disabled = was_disabled
