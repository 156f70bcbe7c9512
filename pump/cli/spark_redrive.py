"""`pump spark redrive`: dead letters that are chosen by Spark SQL, sent again by Spark tasks."""

from __future__ import annotations

import click

from .exit_codes import ExitCode
from .options import gateway_option
from .redrive_options import redrive_options
from .spark_options import spark_options


@click.command(short_help="Send selected dead letters again.")
@redrive_options
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    metavar="N",
    help="So many consumers at once. Default: one for a thousand messages, as many as there are "
    "cores at most.",
)
@gateway_option
@spark_options
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
    tasks: int | None,
    gateway: str | None,
    master: str,
    conf: tuple[tuple[str, str], ...],
    py_files: tuple[str, ...],
) -> ExitCode:
    """Send the dead letters of QUEUE for which WHERE holds to another queue, and remove them.

    As `pump redrive`, which needs no Java, but the condition is Spark SQL, and the messages are
    sent by Spark tasks. The broker must be one that all machines reach; the run's folder and the
    ledger's (Parquet) must be seen by all of them. --rate is what all tasks send together.

    \b
    Columns of WHERE:
      id, type, reason, detail, attempts, rejected_at, original_queue, created_at,
      body (text), body_bytes, content_type, correlation_id, message_group, headers['name']

    \b
    Examples:
      pump spark redrive orders-dead -g sqs://eu-west-1 --to orders --dry-run \\
        --where "reason = 'DeliveryError' AND type = 'PlaceOrder'"
      pump spark redrive orders-dead --to orders --where TRUE --rate 500 \\
        --master spark://head:7077 --run /mnt/shop/redrive --ledger /mnt/shop/ledger

    \b
    Exit codes:
      0 all selected were sent   2 wrong usage   3 a setting cannot work, such as WHERE
      4 broker unreachable, queue missing, or some were not sent
      130 interrupted: the same command goes on
    """
    from ..spark.session import SparkOptions
    from .redriving import Asked
    from .spark_redriving import redrive_on_spark

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
    options = SparkOptions(
        master=master,
        app_name=f"pumphouse redrive {queue}",
        conf=dict(conf),
        py_files=py_files,
        is_retrying=True,
    )
    return redrive_on_spark(asked, options, gateway, tasks)
