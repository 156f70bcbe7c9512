"""What is said of a slice that Spark gave up."""

from __future__ import annotations

import pytest

from pump.spark.run.spark_cluster import _cause

pytestmark = pytest.mark.spark

_DEATH = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 \
times, most recent failure: Lost task 0.3: org.apache.spark.SparkException: Python worker exited \
unexpectedly (crashed). Consider setting 'spark.python.worker.faulthandler.enabled'.
\tat org.apache.spark.api.python.BasePythonRunner
"""
_OTHER = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: no space
\tat org.apache.spark.scheduler.DAGScheduler
"""
_EXIT = """An exception was thrown from the Python worker: Traceback (most recent call last):
    await fut
asyncio.exceptions.CancelledError

During handling of the above exception, another exception occurred:

  File "shop.py", line 28, in place
    raise SystemExit(3)
SystemExit: 3
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_DEATH, "a task's Python process died"),
        (_EXIT, "a handler ended the task that it ran in (SystemExit: 3)"),
        ("Traceback\nshop.OrderError: no such order\n\tat org.apache", "shop.OrderError: no such"),
        (_OTHER, "org.apache.spark.SparkException: Job aborted due to stage failure: no space"),
        ("No module named 'pump'", "the workers' Python has no pumphouse"),
        ("", "the driver's JVM has ended"),
    ],
)
def test_when_spark_gives_a_slice_up_then_one_line_says_why(text: str, said: str) -> None:
    """R78: an operator reads no Java stack."""
    cause = _cause(RuntimeError(text))

    assert cause.startswith(said)
    assert "\n" not in cause
