"""Running: an app on a Spark session, from the checks to the ledger's last roll."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from ...app import App
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import StorageFailed
from ...observability import vocabulary
from ...observability.log import get_logger
from ...stores.ledger.parquet_ledger import ParquetLedger
from .checks import check_gateway, check_session, ledger_for
from .cluster import Cluster
from .driver import Driver
from .listening import Listener, Silent
from .options import SparkRunOptions
from .plan import TaskPlan
from .run_folder import RunFolder, run_folder
from .stopping import Stops, run_stoppable
from .summary import SparkRun
from .travelling import Luggage, packed

_log = get_logger("pump.spark")


def run_on_spark(app: App, spark: Any, **options: Any) -> SparkRun:
    """What `App.run_on_spark` does."""
    work = Work.of(app, SparkRunOptions(**options))
    run = run_work(work, spark)
    if run.failure is not None:
        raise run.failure
    return run


@attrs.frozen(kw_only=True, eq=False)
class Work:
    """An app that passed its checks, ready to travel."""

    app: App
    options: SparkRunOptions
    luggage: Luggage
    ledger: ParquetLedger

    @classmethod
    def of(cls, app: App, options: SparkRunOptions, luggage: Luggage | None = None) -> Work:
        """Raise what would keep the app from running on any Spark."""
        app.check()
        check_gateway(app.built_gateway().capabilities)
        ledger = ledger_for(app, options.ledger)
        luggage = packed(app) if luggage is None else luggage
        return cls(app=app, options=options, luggage=luggage, ledger=ledger)

    async def run(
        self, cluster: Cluster, folder: RunFolder, stops: Stops, listener: Listener
    ) -> SparkRun:
        """Run slices until the run ends."""
        plan = self._plan(folder, is_disk_shared=cluster.is_one_machine)
        driver = Driver(self.app, self.options, plan, cluster, listener)
        with stops.told_to(driver.stop):
            return await driver.run()

    def _plan(self, folder: RunFolder, *, is_disk_shared: bool) -> TaskPlan:
        subscriptions = self.app.subscriptions
        return TaskPlan(
            luggage=self.luggage,
            subscriptions=tuple(each.name for each in subscriptions),
            gateway=self.app.gateway_url,
            concurrency={each.name: each.concurrency for each in subscriptions},
            ledger=self.ledger,
            run_folder=folder.path,
            messages=self.options.slice_messages,
            time_s=self.options.slice_time.total_seconds(),
            flush=self.options.flush,
            is_disk_shared=is_disk_shared,
            prepare=self.options.prepare,
        )


def run_work(work: Work, spark: Any, listener: Listener | None = None) -> SparkRun:
    """Run it from here to its end. What pumps stopped by is in the summary; what keeps it from
    running at all is raised. SIGTERM and Ctrl-C drain, and a second one kills.
    """
    from .spark_cluster import SparkCluster

    check_session(spark)
    cluster = SparkCluster(spark)
    with running_in(work.ledger) as folder:
        return run_stoppable(lambda stops: work.run(cluster, folder, stops, listener or Silent()))


@contextmanager
def running_in(ledger: ParquetLedger, clock: Clock = SYSTEM_CLOCK) -> Iterator[RunFolder]:
    """A run's folder, and afterwards a ledger in which every row is in a file."""
    with run_folder(ledger.folder) as folder:
        try:
            yield folder
        finally:
            _adopt(ledger, clock.time_s())


def _adopt(ledger: ParquetLedger, now_s: float) -> None:
    """Roll what tasks left behind that were killed."""
    store = ledger.new_store()
    try:
        store.open()
        store.close(now_s)
    except (StorageFailed, OSError) as error:
        _log.warning(
            vocabulary.LEDGER_UNROLLED,
            path=str(ledger.folder),
            error=str(error),
            remedy="the rows are in its journals; the next run, or any pump, rolls them",
        )
