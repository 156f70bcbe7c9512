"""`pump spark redrive`: dead letters that are chosen by Spark SQL, sent again by Spark tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import click

from ..app import App
from ..exit_codes import ExitCode
from ..redrive.folder import RedriveCounts, opened
from ..redrive.rows import LedgerRows
from ..redrive.run import PreparedRun
from .log_setup import set_up_logging
from .options import gateway_option
from .redrive import RedriveOptions, conduct, redrive_options, warn_of_limit
from .session import app_for, in_session
from .spark import spark_options

if TYPE_CHECKING:
    from ..spark.session import SparkOptions
    from ..stores.ledger.parquet_ledger import ParquetLedger


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
    from .redrive import RedriveOptions

    asked = RedriveOptions(
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


# Redriving on Spark: what `pump spark redrive` does once its options are known.

_BATCH = 100


def redrive_on_spark(
    asked: RedriveOptions, options: SparkOptions, gateway: str | None, tasks: int | None
) -> ExitCode:
    """Redrive in tasks of a Spark session of our own."""
    from ..spark.run.running import check_gateway, check_session, ledger_for
    from ..spark.session import spark_session

    app = app_for(None, gateway)
    check_gateway(app.built_gateway().capabilities)
    ledger = ledger_for(app, asked.ledger)
    url = app.gateway_url or ""
    plan = asked.plan(url)
    with opened(asked.folder(plan), plan) as folder, spark_session(options) as spark:
        check_session(spark)
        from ..spark.redrive import SparkSelector

        async def work(it: App) -> ExitCode:
            send = _Sending(spark, url, ledger, asked.rate, tasks)
            return await conduct(it.gateway, folder, plan, SparkSelector(spark), asked, send)

        return in_session(app, work)


@attrs.frozen
class _Sending:
    """Sends by Spark tasks."""

    spark: Any
    gateway: str = attrs.field(repr=False)
    ledger: ParquetLedger
    rate: float | None
    tasks: int | None

    async def __call__(
        self,
        prepared: PreparedRun,
        stopping: asyncio.Event,
        on_moved: Callable[[RedriveCounts], None],
    ) -> RedriveCounts:
        from ..spark.redrive import RedriveTask, count_tasks, run_redrive_tasks

        slots = self.spark.sparkContext.defaultParallelism
        tasks = count_tasks(prepared.picture.count, slots, self.tasks)
        redrive_task = RedriveTask(
            gateway=self.gateway,
            task=prepared.task(rate=self.rate, batch=_BATCH),
            ledger=self.ledger,
            prepare=partial(set_up_logging, "warning", "console"),
        )
        try:
            ended = await run_redrive_tasks(
                self.spark, redrive_task, tasks, stopping=stopping, on_moved=on_moved
            )
        finally:
            # Opening and closing the ledger rolls what killed tasks left behind.
            async with LedgerRows(self.ledger, "driver"):
                pass
        if ended.is_full:
            warn_of_limit(ended.counts.held, prepared.plan)
        if ended.failures:
            raise ended.failures[0]
        # What one task hands back as it ends, another one may receive and hand back again.
        untouched = min(ended.counts.held, prepared.seen_count - prepared.selected_count)
        return attrs.evolve(ended.counts, held=untouched)
