"""`pump report`: what became of messages, as tables and one page, on this machine."""

from __future__ import annotations

from typing import Any

import click

from .report_options import report_options


@click.command(short_help="Analyse outcomes and dead letters.")
@report_options
def report(**options: Any) -> None:
    """Analyse what became of messages: volumes and failure rates over time, latency percentiles,
    retries, clusters of like failures, poison messages, and what lies in dead-letter queues.

    Writes one page, report.html, which opens offline, and every table as Parquet beside it. The
    ledger may be read while pumps write it. `pump ledger` shows the last day on the terminal;
    this looks at weeks. For more than one machine can read: pump spark report.

    \b
    Needs: pip install 'pumphouse[report]'.

    \b
    Examples:
      pump report
      pump report --ledger /var/lib/shop/ledger --since 30d --out shop-report --open
      pump report --dead-letters orders-dead --gateway sqs://eu-west-1
      pump report --since 2026-11-01 --until 2026-11-08 --type PlaceOrder
      pump report --json | jq '.clusters[0].pattern'

    \b
    Exit codes:
      0 written   2 wrong usage   3 no ledger, a foreign folder, or DuckDB is missing
      4 broker unreachable, queue missing, or the ledger cannot be read
    """
    from ..report.duckdb_engine import duckdb_engine
    from .reporting import Asked, print_made

    print_made(Asked(**options), duckdb_engine)
