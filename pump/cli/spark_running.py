"""Spark running: what `pump spark run` does once its options are known."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from ..app import App
from .exit_codes import ExitCode
from .failure import Failure
from .loading import load_app, put_working_folder_first, shadowing_warnings
from .log_setup import set_up_logging
from .reports import Report, report_in
from .spark_reports import report_end, spark_progress

if TYPE_CHECKING:
    from ..spark.run.options import SparkRunOptions
    from ..spark.run.summary import SparkRun
    from ..spark.session import SparkOptions


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


def _run(command: SparkCommand, options: SparkRunOptions, app: App, report: Report) -> SparkRun:
    from ..spark.run.running import Work, run_work
    from ..spark.run.travelling import Named
    from ..spark.session import spark_session

    luggage = Named(target=command.target, folders=(str(Path.cwd()),))
    work = Work.of(app, options, luggage)
    with spark_session(command.session) as spark:
        report.started(app, command.target)
        with spark_progress() as progress:
            run = run_work(work, spark, progress)
    report_end(report, app, run)
    return run


def _ending(run: SparkRun) -> ExitCode:
    from ..spark.run.errors import SliceFailed, TaskFailed
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
