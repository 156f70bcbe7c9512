"""The pump on Spark, on the cores of this machine."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from ..reading import Reading
from .app import make_app
from .backlog import Backlog, Clock, backlog
from .outcomes import count_processed

_LEDGER, _WARM_UP_LEDGER = Path("ledger"), Path("warm-up")
_WARM_UP = 100
"""Messages a core that go through first: a cluster's Python workers are there already, too."""


def measure_on_spark(count: int, work: str, cores: int) -> Reading:
    """In a session of its own; see `consume`."""
    from pump.spark.session import SparkOptions, spark_session

    options = SparkOptions(master=f"local[{cores}]", app_name="benchmark")
    with backlog(work) as waiting, spark_session(options) as spark:
        waiting.fill(_WARM_UP * cores)
        _run(spark, waiting, _WARM_UP_LEDGER)
        return consume(spark, waiting, count)


def consume(spark: Any, waiting: Backlog, count: int) -> Reading:
    """Fill the queue, run, and measure from the first delete to the last."""
    waiting.fill(count)
    with ThreadPoolExecutor(1, "run on spark") as thread:
        run = thread.submit(_run, spark, waiting, _LEDGER)
        reading = waiting.timed(count, _clock, lambda: _check(run))
        run.result()
    processed = count_processed(_LEDGER)
    assert processed == count, f"{processed} of {count} messages are in the ledger"
    return reading


def _clock() -> Clock:
    # The thread that measures is one of the driver's process, and no part of its work.
    return Clock(_spark_processes, less=time.thread_time)


def _check(run: Future[None]) -> None:
    if run.done():
        run.result()
        raise AssertionError("the run ended, and the queue is not empty")


def _spark_processes() -> list[psutil.Process]:
    """This one, which is the driver, the JVM, and the workers; not the server."""
    own = psutil.Process()
    jvms = [each for each in own.children() if each.name() == "java"]
    return [own, *(each for jvm in jvms for each in (jvm, *jvm.children(recursive=True)))]


def _run(spark: Any, waiting: Backlog, ledger: Path) -> None:
    app = make_app(waiting.endpoint, waiting.work)
    app.run_on_spark(spark, until_empty=True, ledger=ledger)
