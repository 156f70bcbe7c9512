"""`pump redrive`: dead letters that are chosen by SQL, sent again."""

from __future__ import annotations

import click

from .exit_codes import ExitCode
from .options import app_option, gateway_option
from .redrive_options import redrive_options


@click.command(short_help="Send selected dead letters again.")
@redrive_options
@app_option
@gateway_option
def redrive(
    queue: str,
    *,
    to: str,
    where: str,
    dry_run: bool,
    rate: float | None,
    limit: int | None,
    ledger: str | None,
    run: str | None,
    as_json: bool,
    app: str | None,
    gateway: str | None,
) -> ExitCode:
    """Send the dead letters of QUEUE for which WHERE holds to another queue, and remove them.

    A snapshot of the queue is taken and the condition run over it (DuckDB); then each selected
    message is sent, recorded in the run's folder and in the ledger, and only then removed. What
    is not selected stays. Stopped or killed at any moment, the same command goes on where it
    was: none is lost, and none is sent twice but for a batch whose answer was cut off, and not
    even that where the target de-duplicates.

    \b
    Columns of WHERE:
      id, type, reason, detail, attempts, rejected_at, original_queue, created_at,
      body (text), body_bytes, content_type, correlation_id, message_group, headers['name']

    \b
    Examples:
      pump redrive orders-dead --to orders --where "type = 'PlaceOrder'" --dry-run
      pump redrive orders-dead --to orders --where "detail LIKE '%Timeout%'" --rate 50
      pump redrive orders-dead --to orders --where "rejected_at > now() - INTERVAL 1 DAY"
      pump redrive orders-dead --to orders --where TRUE --limit 100

    \b
    Exit codes:
      0 all selected were sent   2 wrong usage   3 a setting cannot work, such as WHERE
      4 broker unreachable, queue missing, or some were not sent
      130 interrupted: the same command goes on
    """
    from .redriving import Asked, redrive_here

    asked = Asked(
        queue=queue,
        to=to,
        where=where,
        dry_run=dry_run,
        rate=rate,
        limit=limit,
        ledger=ledger,
        run=run,
        as_json=as_json,
    )
    return redrive_here(asked, app, gateway)
