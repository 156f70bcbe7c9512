"""`pump spark report`: what became of messages, as tables and one page, on a Spark cluster."""

from __future__ import annotations

from typing import Any

import click

from .report import report_options
from .spark import spark_options


@click.command(short_help="Analyse outcomes and dead letters.")
@report_options
@spark_options
def report(
    *, master: str, conf: tuple[tuple[str, str], ...], py_files: tuple[str, ...], **options: Any
) -> None:
    """Analyse what became of messages, as `pump report` does, with the same SQL, the same tables
    and the same page, on Spark: for ledgers that are too large for one machine.

    The ledger is a folder of Parquet files at the same path on every worker. Rows that wait in
    journals, and a SQLite ledger, are read here and sent.

    \b
    Needs: pip install 'pumphouse[spark]'.

    \b
    Examples:
      pump spark report --ledger /mnt/ledger --since all --out report
      pump spark report --master spark://host:7077 --conf spark.executor.memory=8g
      pump spark report --dead-letters orders-dead --gateway sqs://eu-west-1

    \b
    Exit codes:
      0 written   2 wrong usage   3 no ledger, a foreign folder, or Spark does not start
      4 broker unreachable, queue missing, or the ledger cannot be read
    """
    from ..spark.session import SparkOptions, spark_session
    from .report import ReportOptionsGiven, print_made

    asked = ReportOptionsGiven(**options)
    # What the user got wrong is said before a cluster is started.
    asked.check()
    settings = SparkOptions(
        master=master, app_name="pump spark report", conf=dict(conf), py_files=py_files
    )
    with spark_session(settings) as session:
        from ..spark.report import spark_engine

        print_made(asked, spark_engine(session))
