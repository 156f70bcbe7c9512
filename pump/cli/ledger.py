"""`pump ledger`: what became of messages, from the ledger that a pump wrote."""

from __future__ import annotations

import click

from .options import json_option

STATUSES = ["processed", "retrying", "dead-lettered", "discarded", "lease-lost", "redriven"]


@click.command(short_help="Show what became of messages.")
@click.argument("path", metavar="[PATH]", required=False)
@click.option(
    "--since",
    metavar="WHEN",
    default="1d",
    help="From when on: a duration back from now (1h), a UTC date or time (2026-11-16, "
    "2026-11-16T08:30), or all. Default: 1d.",
)
@click.option("--queue", "queues", metavar="NAME", multiple=True, help="Only this queue.")
@click.option("--type", "types", metavar="NAME", multiple=True, help="Only this type of message.")
@click.option("--reason", "reasons", metavar="NAME", multiple=True, help="Only this reason.")
@click.option(
    "--status", "statuses", type=click.Choice(STATUSES), multiple=True, help="Only this status."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=10,
    help="How many types, reasons, handlers and failures to show. Default: 10.",
)
@json_option
def ledger(
    path: str | None,
    *,
    since: str,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    reasons: tuple[str, ...],
    statuses: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> None:
    """Show what became of messages: rates by type and reason, the slowest handlers, the last
    failures, and a chart of them over time.

    PATH is a SQLite file, or a folder of Parquet files, that `pump run --ledger PATH` or
    App(ledger=…) has written; by default .pumphouse/ledger.db, else .pumphouse/ledger. It may be
    read while pumps write it. Filters may be repeated; times are UTC.

    \b
    Examples:
      pump ledger
      pump ledger /var/lib/shop/ledger --since 1h
      pump ledger --status dead-lettered --type PlaceOrder --limit 50
      pump ledger --since 2026-11-16 --json | jq '.failures[].detail'
    """
    from .ledger_report import Asked, print_ledger

    print_ledger(
        Asked(
            path=path,
            since=since,
            queues=queues,
            types=types,
            reasons=reasons,
            statuses=statuses,
            limit=limit,
        ),
        as_json=as_json,
    )
