"""Spark reports: how `pump spark run` tells what it does; begin and end as `pump run` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..app import App
from ..clock import SYSTEM_CLOCK, Clock
from ..loop import PumpStats
from ..performer import Performer
from .console import stderr
from .reports import Report

if TYPE_CHECKING:
    from ..spark.run.slicing import Depth
    from ..spark.run.summary import SliceSummary, SparkRun


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


def report_end(report: Report, app: App, run: SparkRun) -> None:
    """The summary that `pump run` prints, over all tasks."""
    performers = [
        Performer(each, stats=PumpStats(**attrs.asdict(run.counts[each.name])))
        for each in app.subscriptions
        if each.name in run.counts
    ]
    report.ended(app, performers, run.run_s)
