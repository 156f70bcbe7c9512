"""The pump in Spark's tasks: one session, queues on `pump local`, and once on LocalStack."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pump import ConfigurationError
from pump.exit_codes import Failure
from pump.message import new_id
from pump.spark.run import Counts, Ended, TaskEnd
from pump.spark.run.plan import SliceFailed
from tests.brokers.aws_account import AwsAccount

from .run_apps import HEAVY, an_app
from .run_shop import Depot, known_to_workers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


@pytest.fixture
def depot(
    spark: Any, local_aws: AwsAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Depot]:
    """A queue of the test's own on `pump local`."""
    yield from a_depot(spark, local_aws, tmp_path, monkeypatch)


def a_depot(
    spark: Any, account: AwsAccount, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Depot]:
    with known_to_workers(spark, account, monkeypatch) as url:
        yield Depot(an_app(url, f"q{new_id()}", folder), folder)


def test_when_an_app_runs_on_spark_then_all_is_handled_routed_and_recorded(
    spark: Any, depot: Depot
) -> None:
    """R78: the app's own subscriptions and handlers in tasks; by value, as from a notebook."""
    depot.send(300)

    run = depot.app.run_on_spark(spark, until_empty=True, ledger=depot.ledger)

    assert run.ended is Ended.EMPTY
    assert run.counts == {depot.queue: Counts(received=300, processed=270, dead_lettered=30)}
    assert len(run.slices[0].tasks) == 2
    assert depot.handled() == dict.fromkeys(range(300), 1)
    assert depot.rows() == {("processed", 1): 270, ("dead-lettered", 1): 30}
    assert (depot.depth(depot.queue), depot.depth(f"{depot.queue}-dead")) == (0, 30)
    assert str(os.getpid()) not in depot.workers()
    assert list((depot.ledger / "_spark").iterdir()) == []
    assert list((depot.ledger / "_journal").iterdir()) == []


def test_when_slices_are_small_then_there_are_several_and_the_sums_are_right(
    spark: Any, depot: Depot
) -> None:
    """R78: bounded slices, one summary each; Python workers are used again."""
    depot.send(60)

    run = depot.app.run_on_spark(
        spark, until_empty=True, ledger=depot.ledger, slice_messages=20, tasks=1
    )

    assert [each.settled for each in run.slices] == [20, 20, 20]
    assert [task.end for each in run.slices for task in each.tasks][:2] == [TaskEnd.MESSAGES] * 2
    assert run.settled == 60
    assert len(depot.workers()) <= 2


def test_when_the_driver_is_told_to_stop_then_the_tasks_drain(spark: Any, depot: Depot) -> None:
    """R78: SIGTERM drains cooperatively; Spark's own handlers are back afterwards."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    depot.send(20)
    with depot.when_handled(20, lambda: os.kill(os.getpid(), signal.SIGTERM)):
        run = depot.app.run_on_spark(spark, ledger=depot.ledger)

    assert run.ended is Ended.STOPPED
    assert run.settled == 20
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_when_the_driver_is_told_twice_then_the_tasks_are_killed_and_nothing_is_lost(
    spark: Any, depot: Depot
) -> None:
    """R78: a second signal cancels the job; what was in hand has no row, and is in its queue."""
    depot.send(3, first=HEAVY)

    def stop_twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    with depot.when_handled(3, stop_twice):
        run = depot.app.run_on_spark(spark, ledger=depot.ledger, tasks=1)

    assert (run.ended, run.slices) == (Ended.FORCED, ())
    assert depot.rows() == {}
    assert depot.depth(depot.queue) == 3


def test_when_a_worker_dies_then_spark_gives_up_and_the_messages_come_again(
    spark: Any, depot: Depot
) -> None:
    """R78: a caller's own `local[N]` tries a task once; nothing that was in its hands is lost."""
    depot.send(1, first=-1)

    with pytest.raises(SliceFailed, match="Python process died"):
        depot.app.run_on_spark(spark, until_empty=True, ledger=depot.ledger)

    assert depot.depth(depot.queue) == 1
    assert depot.rows() == {}


def test_when_a_task_cannot_find_the_apps_module_then_one_line_says_so(
    spark: Any, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: a user's mistake is a `ConfigurationError` with its remedy, not a Java stack trace."""
    module = ModuleType("only_on_the_driver")
    module.__file__ = "only_on_the_driver.py"
    monkeypatch.setattr(module, "app", depot.app, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    depot.send(1)

    with pytest.raises(Failure, match="there is no module 'only_on_the_driver'"):
        depot.app.run_on_spark(spark, until_empty=True, ledger=depot.ledger)

    assert depot.depth(depot.queue) == 1


def test_when_a_part_of_the_app_cannot_travel_then_it_is_said_before_a_job(
    spark: Any, depot: Depot
) -> None:
    """R78: what cannot be pickled is named."""
    depot.app.observe(threading.Lock().acquire)  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match="cannot travel to the tasks"):
        depot.app.run_on_spark(spark, until_empty=True, ledger=depot.ledger)


def test_when_the_queues_are_on_localstack_then_it_runs_all_the_same(
    spark: Any, aws: AwsAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: SQS through LocalStack."""
    for depot in a_depot(spark, aws, tmp_path, monkeypatch):
        depot.send(40)

        run = depot.app.run_on_spark(spark, until_empty=True, ledger=depot.ledger)

        assert run.counts == {depot.queue: Counts(received=40, processed=36, dead_lettered=4)}
        assert depot.rows() == {("processed", 1): 36, ("dead-lettered", 1): 4}
