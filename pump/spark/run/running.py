"""Running: an app on a Spark session, from the checks to the ledger's last roll."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs

from ...app import App
from ...capabilities import Capabilities
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import ConfigurationError, StorageFailed
from ...observability import vocabulary
from ...observability.log import get_logger
from ...stores.ledger.parquet_ledger import ParquetLedger
from ...stores.ledger.reading import DEFAULT_FOLDER, ledger_from
from .driver import Listener, RunDriver, Silent
from .plan import AppReference, Cluster, RunFolder, SparkRunOptions, TaskPlan, packed, run_folder
from .summary import SparkRun

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
    app_reference: AppReference
    ledger: ParquetLedger

    @classmethod
    def of(
        cls, app: App, options: SparkRunOptions, app_reference: AppReference | None = None
    ) -> Work:
        """Raise what would keep the app from running on any Spark."""
        app.check()
        check_gateway(app.built_gateway().capabilities)
        ledger = ledger_for(app, options.ledger)
        app_reference = packed(app) if app_reference is None else app_reference
        return cls(app=app, options=options, app_reference=app_reference, ledger=ledger)

    async def run(
        self, cluster: Cluster, folder: RunFolder, stops: Stops, listener: Listener
    ) -> SparkRun:
        """Run slices until the run ends."""
        plan = self._plan(folder, is_disk_shared=cluster.is_one_machine)
        driver = RunDriver(self.app, self.options, plan, cluster, listener)
        with stops.told_to(driver.stop):
            return await driver.run()

    def _plan(self, folder: RunFolder, *, is_disk_shared: bool) -> TaskPlan:
        subscriptions = self.app.subscriptions
        return TaskPlan(
            app_reference=self.app_reference,
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


# Checks: what would keep an app from running on Spark, said before anything is started.

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


# Stopping: signals to a driver that waits, whatever else runs in its process.
#
# The driver's event loop has a thread of its own, so that it works in a notebook too, and so that
# the main thread is never inside the JVM when a signal comes.

_T = TypeVar("_T")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WAIT_S = 0.5


class Stops:
    """Carries stops from any thread to what is to stop; those that came early too."""

    def __init__(self) -> None:
        # One signal may come while another is handled.
        self._lock = threading.RLock()
        self._early_count = 0
        self._stop: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self) -> None:
        """Stop; asked again, at once."""
        with self._lock:
            if self._stop is None or self._loop is None:
                self._early_count += 1
            else:
                self._loop.call_soon_threadsafe(self._stop)

    @contextmanager
    def told_to(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` on the running loop, for each that was asked for."""
        with self._lock:
            self._stop, self._loop = stop, asyncio.get_running_loop()
            early_count = self._early_count
        for _ in range(early_count):
            stop()
        try:
            yield
        finally:
            with self._lock:
                self._stop = self._loop = None


def run_stoppable(make: Callable[[Stops], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine to its end; SIGTERM and Ctrl-C meanwhile are stops."""
    stops = Stops()
    with _handled(stops.ask), ThreadPoolExecutor(1, thread_name_prefix="pump-spark") as thread:
        # Whatever it ends with is raised here, also what is no `Exception`.
        ended = thread.submit(lambda: asyncio.run(make(stops)))
        while not ended.done():
            wait([ended], _WAIT_S)
    return ended.result()


@contextmanager
def _handled(ask: Callable[[], None]) -> Iterator[None]:
    """Have signals ask; PySpark's own handler of Ctrl-C would cancel every job."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may handle signals: the embedding program ends us.
        return
    before = {each: signal.signal(each, lambda number, frame: ask()) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
