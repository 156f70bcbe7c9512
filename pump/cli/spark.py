"""`pump spark`: the commands that run on a Spark cluster. None needs PySpark until it is run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..app import App
from ..clock import SYSTEM_CLOCK, Clock
from ..exit_codes import ExitCode, Failure
from ..loading import load_app, put_working_folder_first, shadowing_warnings
from ..loop import PumpStats
from ..performer import Performer
from ..redrive.folder import RedriveCounts, opened
from ..redrive.rows import LedgerRows
from ..redrive.run import PreparedRun
from .console import stderr
from .options import (
    concurrencies_option,
    duration,
    gateway_option,
    log_format_option,
    log_level_option,
    log_sample_option,
    pair,
    until_empty_option,
)
from .redrive import RedriveOptions, conduct, redrive_options, warn_of_limit
from .report import report_options
from .run_report import RunReport, report_in
from .session import app_for, in_session, set_up_logging

if TYPE_CHECKING:
    from ..spark.run.plan import Depth, SparkRunOptions
    from ..spark.run.summary import SliceSummary, SparkRun
    from ..spark.session import SparkOptions
    from ..stores.ledger.parquet_ledger import ParquetLedger


class SparkGroup(click.Group):
    """The commands, in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Where nothing better is done with SIGTERM, as while Spark starts, it ends the command as
    Ctrl-C does: with Spark's JVM and its folder gone.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(cls=SparkGroup, short_help="Run, report and redrive on a Spark cluster.")
@click.pass_context
def spark(context: click.Context) -> None:
    """Run an app, or analyse what became of its messages, on Spark.

    \b
    Needs: pip install 'pumphouse[spark]'. A Java 17 or 21 is used when there is one; otherwise
    the one that comes with it.

    \b
    Examples:
      pump spark run orders:app --gateway sqs:// --until-empty
      pump spark report --ledger .pumphouse/ledger --out report
      pump spark redrive orders-dead --to orders --where "type = 'PlaceOrder'" --dry-run
    """
    context.with_resource(_sigterm_as_ctrl_c())


# The options that every `pump spark` command shares: which cluster, and how it is set up.

_F = TypeVar("_F", bound=Callable[..., Any])


def spark_options(command: _F) -> _F:
    """Give a command `--master`, `--conf` and `--py-files`; it is called with `master`, `conf`
    and `py_files`.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = [
    click.option(
        "--master",
        default="local[*]",
        metavar="URL",
        help="The Spark master, such as spark://host:7077 or local[4]. Default: local[*], all "
        "cores of this machine.",
    ),
    click.option(
        "--conf",
        type=pair,
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of Spark's; may be repeated.",
    ),
    click.option(
        "--py-files",
        metavar="PATH",
        multiple=True,
        help="A .py, .zip or .egg that the workers import from; may be repeated.",
    ),
]


# `pump spark run`: an app in Spark tasks, slice by slice.


@spark.command(short_help="Run an app in Spark tasks.")
@click.argument("target", metavar="MODULE:APP")
@until_empty_option
@click.option(
    "--for",
    "run_for",
    type=duration,
    metavar="DURATION",
    help="Stop by itself after this long, such as 1h.",
)
@click.option(
    "--ledger",
    metavar="FOLDER",
    help="Where the outcomes are written before their messages are removed: a folder that every "
    "machine sees. Default: the app's own, then .pumphouse/ledger.",
)
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most so many tasks at once. Default: as many as Spark has room for.",
)
@click.option(
    "--slice-messages",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    metavar="N",
    help="A task ends after so many messages.",
)
@click.option(
    "--slice-time",
    type=duration,
    default="1m",
    show_default=True,
    metavar="DURATION",
    help="A task receives for at most so long.",
)
@click.option(
    "--flush",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="N",
    help="At most so many messages of a subscription are in a task's hands: what one that is "
    "killed may have handled in vain.",
)
@concurrencies_option(" in each task")
@gateway_option
@spark_options
@log_level_option
@log_format_option
@log_sample_option
def run(
    target: str,
    *,
    until_empty: bool,
    run_for: timedelta | None,
    ledger: str | None,
    tasks: int | None,
    slice_messages: int,
    slice_time: timedelta,
    flush: int,
    concurrencies: tuple[tuple[str, int], ...],
    gateway: str | None,
    master: str,
    conf: tuple[tuple[str, str], ...],
    py_files: tuple[str, ...],
    log_level: str,
    log_format: str,
    log_sample: int,
) -> ExitCode:
    """Run the app that MODULE:APP names in Spark tasks, until it is told to stop.

    Each task is a bounded run of the ordinary pump: receive, handle, write the outcome durably,
    then settle. The depth of the queues says how many tasks a slice has. A task that dies has its
    messages come again; none is lost. The gateway must be one that all machines reach, and the
    ledger a folder that all of them see.

    The first SIGTERM or Ctrl-C drains: no slice is started any more, the tasks finish what they
    have. The second one kills the tasks; what they held comes again when its leases end.

    \b
    Examples:
      pump spark run orders:app --until-empty
      pump spark run orders:app --gateway sqs://eu-west-1 --for 1h
      pump spark run orders:app --master spark://head:7077 --ledger /mnt/shop/ledger
      pump spark run orders:app --master 'local[4]' --concurrency orders=50 --flush 500
      pump spark run orders:app --py-files handlers.zip --conf spark.executor.memory=2g

    \b
    Exit codes:
      0 drained   1 Spark gave a slice up, or an unexpected error   2 wrong usage
      3 the app cannot work   4 broker unreachable or queue missing
      5 too many unacceptable messages   130 stopped by a second signal
    """
    if until_empty and run_for is not None:
        raise click.UsageError("--until-empty and --for exclude each other")
    from ..spark.run.plan import SparkRunOptions
    from ..spark.session import SparkOptions
    from .session import set_up_logging

    format = set_up_logging(log_level, log_format, sample=log_sample)
    command = SparkCommand(
        target=target,
        gateway=gateway,
        concurrencies=concurrencies,
        session=SparkOptions(
            master=master,
            app_name=f"pumphouse {target}",
            conf=dict(conf),
            py_files=py_files,
            is_retrying=True,
        ),
        log_level=log_level,
        log_format=format,
        log_sample=log_sample,
    )
    return run_app_on_spark(
        command,
        SparkRunOptions(
            until_empty=until_empty,
            run_for=run_for,
            ledger=ledger,
            tasks=tasks,
            slice_messages=slice_messages,
            slice_time=slice_time,
            flush=flush,
            prepare=command.prepare,
        ),
    )


# Spark running: what `pump spark run` does once its options are known.


@attrs.frozen(kw_only=True)
class SparkCommand:
    """The options of `pump spark run` that are not the run's own."""

    target: str
    session: SparkOptions
    gateway: str | None = attrs.field(default=None, repr=False)
    concurrencies: tuple[tuple[str, int], ...] = ()
    log_level: str = "info"
    log_format: str = "json"
    log_sample: int = 1

    @property
    def prepare(self) -> partial[str]:
        """Sets up a task's logging as the driver's is."""
        return partial(set_up_logging, self.log_level, self.log_format, sample=self.log_sample)


def run_app_on_spark(command: SparkCommand, options: SparkRunOptions) -> ExitCode:
    """Load and check the app, then start Spark, then run; errors are the caller's to say."""
    report = report_in(command.log_format)
    put_working_folder_first()
    for warning in shadowing_warnings():
        report.warn(warning)
    app = load_app(command.target)
    app.override(gateway=command.gateway, concurrency=dict(command.concurrencies))
    return _ending(_run(command, options, app, report))


def _run(command: SparkCommand, options: SparkRunOptions, app: App, report: RunReport) -> SparkRun:
    from ..spark.run.plan import AppByName
    from ..spark.run.running import Work, run_work
    from ..spark.session import spark_session

    app_reference = AppByName(target=command.target, folders=(str(Path.cwd()),))
    work = Work.of(app, options, app_reference)
    with spark_session(command.session) as spark:
        report.started(app, command.target)
        with spark_progress() as progress:
            run = run_work(work, spark, progress)
    report_end(report, app, run)
    return run


def _ending(run: SparkRun) -> ExitCode:
    from ..spark.run.plan import SliceFailed, TaskFailed
    from ..spark.run.summary import Ended

    match run.failure:
        case SliceFailed() as error:
            raise Failure(str(error), exit_code=ExitCode.UNEXPECTED)
        case TaskFailed() as error:
            raise Failure(str(error), exit_code=ExitCode.UNEXPECTED, details=error.trace)
        case None:
            return ExitCode.FORCED if run.ended is Ended.FORCED else ExitCode.OK
        case failure:
            raise failure


# Spark reports: how `pump spark run` tells what it does; begin and end as `pump run` does.


class SparkProgress:
    """One line on a terminal: what was handled and how fast, what is left, how many tasks."""

    def __init__(self, progress: Progress, clock: Clock = SYSTEM_CLOCK) -> None:
        self._progress = progress
        self._clock = clock
        self._line = progress.add_task("looking at the queues", total=None)
        self._handled = 0
        self._rate = 0.0
        self._left = 0
        self._tasks = 0

    def looked(self, depth: Depth) -> None:
        """The queues were asked."""
        self._left = depth.total
        self._show()

    def slice_started(self, number: int, tasks: int) -> None:
        """A job is given to Spark."""
        self._tasks = tasks
        self._show()

    def slice_ended(self, done: SliceSummary) -> None:
        """It has come to its end."""
        self._tasks = 0
        self._handled += done.settled
        self._rate = done.settled / done.run_s if done.run_s else 0.0
        self._show()

    def _show(self) -> None:
        words = f"{self._handled:,} handled · {self._rate:,.0f}/s · {self._left:,} left"
        tasks = f"{self._tasks} tasks" if self._tasks else "idle"
        self._progress.update(self._line, description=f"{words} · {tasks}")


@contextmanager
def spark_progress(console: Console | None = None) -> Iterator[SparkProgress]:
    """A line that lives while the block runs, on a terminal; elsewhere the log has the slices."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    shown = stderr() if console is None else console
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        yield SparkProgress(bar)


def report_end(report: RunReport, app: App, run: SparkRun) -> None:
    """The summary that `pump run` prints, over all tasks."""
    performers = [
        Performer(each, stats=PumpStats(**attrs.asdict(run.counts[each.name])))
        for each in app.subscriptions
        if each.name in run.counts
    ]
    report.ended(app, performers, run.run_s)


# `pump spark report`: what became of messages, as tables and one page, on a Spark cluster.


@spark.command(short_help="Analyse outcomes and dead letters.")
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


# `pump spark redrive`: dead letters that are chosen by Spark SQL, sent again by Spark tasks.


@spark.command(short_help="Send selected dead letters again.")
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
