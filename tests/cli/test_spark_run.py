"""`pump spark run`: what it says before a JVM is started; runs themselves are in tests/spark."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from pump import App, Command, Subscription
from pump.cli.run_report import TextReport
from pump.cli.spark import report_end, spark_progress
from pump.observability import vocabulary
from pump.spark.run.plan import Depth
from pump.spark.run.summary import (
    Counts,
    Ended,
    SliceSummary,
    SparkRun,
    TaskEnd,
    TaskSummary,
)

from .conftest import Pump, Write

PROGRAM = """
    from pump import App, Command, Subscription

    app = App("sqs://eu-west-1")

    class Order(Command):
        n: int

    @app.handler
    async def handle(order: Order) -> None: ...

    app.subscribe(Subscription(queue="orders", request=Order))
"""


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (["nowhere:app"], 3, "there is no module 'nowhere'"),
        (["shop:app", "--gateway", "memory://"], 3, "its queues live in one process"),
        (["shop:app", "--gateway", "local://"], 3, "serve them with `pump local`"),
        (["shop:app", "--ledger", "a.db"], 3, "name a folder for Parquet"),
        (["shop:app", "--concurrency", "x=3"], 3, "the app's own are: orders"),
        (["shop:app", "--slice-time", "0"], 3, "use more than zero"),
        (["shop:app", "--until-empty", "--for", "1h"], 2, "exclude each other"),
        (["shop:app", "--for", "soon"], 2, "is not a duration"),
        (["shop:app", "--flush", "0"], 2, "--flush"),
    ],
)
def test_when_the_command_cannot_work_then_it_says_so_before_spark_starts(
    pump: Pump,
    write: Write,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    exit_code: int,
    says: str,
) -> None:
    """R78: mistakes cost no JVM, and end with the exit codes of `pump run`."""
    write("shop.py", PROGRAM)
    monkeypatch.setattr("pump.spark.session.spark_session", None)

    result = pump("spark", "run", *arguments)

    assert result.exit_code == exit_code, result.output
    assert says in result.output
    assert not (folder / ".pumphouse").exists()


COUNTS = {"orders": Counts(received=1_200, processed=1_190, dead_lettered=10)}
SLICE = SliceSummary(
    number=1, tasks=(TaskSummary(partition=0, end=TaskEnd.EMPTY, counts=COUNTS),), run_s=2.0
)


def test_when_slices_come_and_go_then_the_line_says_what_was_handled_and_what_is_left() -> None:
    """R78: a progress bar from the slices' summaries and the depth."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with spark_progress(console) as progress:
        progress.looked(Depth(ready=5_000, in_flight=20))
        progress.slice_started(1, 4)
        at_work = progress._progress.tasks[0].description
        progress.slice_ended(SLICE)
        idle = progress._progress.tasks[0].description

    assert at_work == "0 handled · 0/s · 5,020 left · 4 tasks"
    assert idle == "1,200 handled · 600/s · 5,020 left · idle"


def test_when_the_run_ends_then_the_summary_is_that_of_pump_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R78: one summary over all tasks, with the warnings of what is gone."""

    class Order(Command):
        n: int

    app = App("memory://")
    app.subscribe(Subscription(queue="orders", request=Order))
    app.counters.add(vocabulary.DISCARDED, 10)

    report_end(TextReport(), app, SparkRun(ended=Ended.EMPTY, counts=COUNTS, run_s=2.0))

    printed = capsys.readouterr()
    assert "Stopped after 2.0s." in printed.out
    assert "1,190" in printed.out
    assert "10 rejected message(s) were discarded" in printed.err
