"""Checks: what would keep an app from running on Spark, said before anything is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...app import App
from ...capabilities import Capabilities
from ...errors import ConfigurationError
from ...stores.ledger.locating import DEFAULT_FOLDER, ledger_from
from ...stores.ledger.parquet_ledger import ParquetLedger

_LOCAL_REMEDY = (
    "its queues are files of one machine; serve them with `pump local`, which any machine reaches "
    "as --gateway 'sqs://?endpoint=http://HOST:PORT'"
)


def check_gateway(capabilities: Capabilities) -> None:
    """`ConfigurationError` unless tasks on other machines reach the same queues."""
    if capabilities.spans_machines:
        return
    remedy = _LOCAL_REMEDY
    if not capabilities.is_shared:
        remedy = (
            "its queues live in one process, and every task is another; use a broker that all of "
            "them reach, such as sqs://, or `pump local` on this machine"
        )
    raise ConfigurationError("gateway", f"{capabilities.gateway}://", remedy)


def ledger_for(app: App, asked: str | os.PathLike[str] | None) -> ParquetLedger:
    """The ledger that the tasks write, with its path made absolute."""
    if asked is not None:
        chosen: object = ledger_from(asked if isinstance(asked, str) else Path(asked))
    else:
        chosen = app.ledger or ParquetLedger(DEFAULT_FOLDER)
    if not isinstance(chosen, ParquetLedger):
        raise ConfigurationError(
            "ledger",
            str(asked) if asked is not None else repr(chosen),
            "tasks on several machines cannot write one SQLite file; name a folder for Parquet "
            "files that all of them see, such as --ledger /mnt/shop/ledger",
        )
    return chosen.at(chosen.folder.absolute())


def check_session(spark: Any) -> None:
    """`ConfigurationError` unless this is a session that can run our tasks."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "spark",
            type(spark).__name__,
            "a Spark Connect session has no tasks of its own; run it where the driver runs, with "
            "`pump spark run` or SparkSession.builder.master(…)",
        )
    speculation = spark.sparkContext.getConf().get("spark.speculation", "false")
    # Spark reads it in any case, and `SparkConf.set` writes Python's own "True".
    if speculation.lower() == "true":
        raise ConfigurationError(
            "spark.speculation",
            speculation,
            "a second copy of a task would be killed with messages in its hands; set it to false",
        )
