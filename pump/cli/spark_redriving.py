"""Redriving on Spark: what `pump spark redrive` does once its options are known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from ..app import App
from ..redrive.counts import Counts
from ..redrive.folder import opened
from ..redrive.rows import LedgerRows
from ..redrive.run import Prepared
from .exit_codes import ExitCode
from .log_setup import set_up_logging
from .redriving import Asked, conduct, warn_of_limit
from .session import app_for, in_session

if TYPE_CHECKING:
    from ..spark.session import SparkOptions
    from ..stores.ledger.parquet_ledger import ParquetLedger

_BATCH = 100


def redrive_on_spark(
    asked: Asked, options: SparkOptions, gateway: str | None, tasks: int | None
) -> ExitCode:
    """Redrive in tasks of a Spark session of our own."""
    from ..spark.run.checks import check_gateway, check_session, ledger_for
    from ..spark.session import spark_session

    app = app_for(None, gateway)
    check_gateway(app.built_gateway().capabilities)
    ledger = ledger_for(app, asked.ledger)
    url = app.gateway_url or ""
    plan = asked.plan(url)
    with opened(asked.folder(plan), plan) as folder, spark_session(options) as spark:
        check_session(spark)
        from ..spark.redrive_selector import SparkSelector

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
        self, prepared: Prepared, stopping: asyncio.Event, on_moved: Callable[[Counts], None]
    ) -> Counts:
        from ..spark.redrive import count_tasks, run_errands
        from ..spark.redrive_task import Errand

        slots = self.spark.sparkContext.defaultParallelism
        tasks = count_tasks(prepared.picture.count, slots, self.tasks)
        errand = Errand(
            gateway=self.gateway,
            task=prepared.task(rate=self.rate, batch=_BATCH),
            ledger=self.ledger,
            prepare=partial(set_up_logging, "warning", "console"),
        )
        try:
            ended = await run_errands(
                self.spark, errand, tasks, stopping=stopping, on_moved=on_moved
            )
        finally:
            # Whoever opens and closes the ledger rolls what killed tasks left behind.
            async with LedgerRows(self.ledger, "driver"):
                pass
        if ended.is_full:
            warn_of_limit(ended.counts.held, prepared.plan)
        if ended.failures:
            raise ended.failures[0]
        # What one task hands back as it ends, another one may receive and hand back again.
        untouched = min(ended.counts.held, prepared.seen_count - prepared.selected_count)
        return attrs.evolve(ended.counts, held=untouched)
