"""One task, from its app to its summary, in this process."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from pump import DeferMessage, RejectMessage, Subscription, current_context
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, UnacceptableLimitReached
from pump.events import Event, PumpStateEvent
from pump.message import Message
from pump.spark.run.plan import AppByName, TaskPlan
from pump.spark.run.summary import Counts, TaskEnd
from pump.spark.run.task import TaskRun, run_task
from pump.stores.ledger.parquet_ledger import ParquetLedger
from pump.subscription import OnRoutingFailure, UnacceptableLimit

from .rig import DEAD, QUEUE, Order, Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_when_a_task_runs_then_all_is_handled_recorded_and_gone(rig: Rig) -> None:
    """R78: receive, handle, write the outcomes, then ack."""
    sent = await rig.send(25)

    summary = await rig.task()

    assert (summary.end, summary.failures) == (TaskEnd.EMPTY, {})
    assert summary.counts == {QUEUE: Counts(received=25, processed=25)}
    assert sorted(rig.handled) == list(range(25))
    assert sorted(rig.rows()) == sorted((each, "processed", 1) for each in sent)
    assert await rig.depth() == 0


async def test_when_the_slice_has_its_messages_then_the_task_ends_and_hands_nothing_back(
    rig: Rig,
) -> None:
    """R78: a bounded run; a slice costs no message an attempt."""
    await rig.send(30)

    summary = await rig.task(messages=12)

    assert summary.end is TaskEnd.MESSAGES
    assert summary.counts == {QUEUE: Counts(received=12, processed=12)}
    assert await rig.depth() == 18


async def test_when_a_slice_ends_then_what_comes_late_is_handled_and_not_handed_back(
    rig: Rig,
) -> None:
    """R78: an open receive may bring a retry at the very end; it must not cost an attempt."""
    await rig.send(1)
    attempts: list[int] = []

    async def fail_once(order: Order) -> None:
        context = current_context()
        assert context is not None
        attempts.append(context.attempt)
        if context.attempt == 1:
            raise DeferMessage(timedelta(milliseconds=350))

    rig.behaviour = fail_once
    summaries = [await rig.task(), await rig.task()]

    assert attempts == [1, 2]
    assert sum(each.counts[QUEUE].released for each in summaries) == 0
    assert await rig.depth() == 0


async def test_when_the_time_is_over_then_what_was_received_is_finished(rig: Rig) -> None:
    """R78: a bounded run, in time too."""
    await rig.send(30)
    # Long enough that a busy machine has received by then.
    plan = rig.plan(rig.folder / "_spark" / "run", time_s=2.0, flush=7)
    task = TaskRun(plan, rig.app, 0)

    async def wait(order: Order) -> None:
        while not task._gate.is_spent:
            await SYSTEM_CLOCK.sleep(0.01)

    rig.behaviour = wait
    summary = await task.run()

    assert summary.end is TaskEnd.TIME
    assert summary.counts == {QUEUE: Counts(received=7, processed=7)}
    assert len(rig.rows()) == 7


def touch_stop(run_folder: Path) -> None:
    (run_folder / "stop").touch()


@pytest.mark.parametrize("ask", [touch_stop, shutil.rmtree])
async def test_when_a_stop_is_asked_for_or_the_driver_is_gone_then_the_task_drains(
    tmp_path: Path, ask: Callable[[Path], None]
) -> None:
    """R78: cooperative drain: what was started ends, and nothing more is received."""
    rig = Rig(tmp_path, prefetch=0)
    await rig.send(30)
    draining = asyncio.Event()
    rig.app.observe(lambda event: draining.set() if is_draining(event) else None)

    async def wait(order: Order) -> None:
        if len(rig.handled) == rig.subscription.concurrency:
            await asyncio.to_thread(ask, rig.folder / "_spark" / "run")
        await draining.wait()

    rig.behaviour = wait
    summary = await rig.task()

    counts = summary.counts[QUEUE]
    assert summary.end is TaskEnd.STOPPED
    assert counts.processed == rig.subscription.concurrency == len(rig.rows())
    assert await rig.depth() == 30 - counts.processed


def is_draining(event: Event) -> bool:
    return isinstance(event, PumpStateEvent) and event.state == "draining"


async def test_when_a_message_is_rejected_then_it_is_routed_and_recorded(rig: Rig) -> None:
    """R78: rejection routing is unchanged."""
    [sent] = await rig.send(1)

    async def refuse(order: Order) -> None:
        raise RejectMessage("no such customer")

    rig.behaviour = refuse
    summary = await rig.task()

    assert summary.counts == {QUEUE: Counts(received=1, dead_lettered=1)}
    assert rig.rows() == [(sent, "dead-lettered", 1)]
    assert (await rig.depth(), await rig.depth(DEAD)) == (0, 1)


async def test_when_the_app_has_a_ledger_of_its_own_then_there_is_one_row_all_the_same(
    rig: Rig,
) -> None:
    """R78: the app's own ledger is off meanwhile, and on again afterwards."""
    own = ParquetLedger(rig.folder)
    rig.app.override(ledger=own)
    [sent] = await rig.send(1)

    await rig.task()

    assert rig.rows() == [(sent, "processed", 1)]
    assert rig.app.ledger is own
    assert rig.app.built_gateway() is rig.gateway


async def test_when_a_pump_stops_by_itself_then_the_summary_says_why(tmp_path: Path) -> None:
    """R78: `UnacceptableLimitReached` reaches the driver, and the others go on."""
    rig = Rig(tmp_path, unacceptable_limit=UnacceptableLimit(count=2))
    rig.app.subscribe(Subscription(queue="others", request=Order, dead_letter_queue=DEAD))
    async with rig.app:
        for spec in (each for sub in rig.app.subscriptions for each in sub.queue_specs()):
            await rig.app.admin.ensure(spec, rig.subscription.make_channels)
        junk = [Message(body=b"{", type="Order", content_type="application/json")] * 2
        await rig.app.gateway.producer(QUEUE).send(junk)
        await rig.app.post(Order(n=7), queue="others")

    summary = await rig.task()

    [failure] = summary.failures.values()
    assert isinstance(failure, UnacceptableLimitReached)
    assert list(summary.failures) == [failure.subscription] == [QUEUE]
    assert summary.counts[QUEUE].invalid == 2
    assert summary.counts["others"] == Counts(received=1, processed=1)
    assert rig.handled == [7]


async def test_when_a_subscription_has_stopped_then_later_tasks_leave_it_alone(rig: Rig) -> None:
    """R78: what stopped for good is not started again by the next slice."""
    rig.app.subscribe(Subscription(queue="others", request=Order, dead_letter_queue=DEAD))
    await rig.send(2)

    summary = await rig.task(stopped=frozenset({QUEUE}))

    assert list(summary.counts) == ["others"]
    assert await rig.depth() == 2


async def test_when_the_ledger_cannot_be_opened_then_nothing_is_received(rig: Rig) -> None:
    """R78: no ledger, no pumping."""
    await rig.send(2)
    run_folder = rig.folder.parent / "run"
    rig.folder.write_text("a file, not a folder")

    summary = await TaskRun(rig.plan(run_folder), rig.app, 0).run()

    assert summary.end is TaskEnd.FAILED
    assert "something else has that name" in str(summary.failures[""])
    assert rig.gateway.record.calls["receive"] == 0


@pytest.mark.parametrize(
    ("is_disk_shared", "is_chosen", "expected"),
    [
        (True, False, OnRoutingFailure.SPILL),
        (False, False, OnRoutingFailure.KEEP),
        (False, True, OnRoutingFailure.SPILL),
    ],
)
def test_when_a_spill_would_go_with_the_machine_then_the_message_stays_in_its_queue(
    rig: Rig, tmp_path: Path, is_disk_shared: bool, is_chosen: bool, expected: OnRoutingFailure
) -> None:
    """R78: nothing is lost on an executor's disk; a spill that somebody chose is used."""
    if not is_chosen:
        rig.app._default_spill = rig.app.spill
    task = TaskRun(rig.plan(tmp_path, is_disk_shared=is_disk_shared), rig.app, 0)

    assert [each.on_routing_failure for each in task._subscriptions()] == [expected]


def a_plan(folder: Path, target: str, **fields: object) -> TaskPlan:
    given = {
        "app_reference": AppByName(target=target),
        "subscriptions": (QUEUE,),
        "ledger": ParquetLedger(folder),
        "run_folder": folder,
        "messages": 1,
        "time_s": 1.0,
        "flush": 1,
        **fields,
    }
    return TaskPlan(**given)  # type: ignore[arg-type]


def test_when_a_task_cannot_import_the_app_then_it_returns_that_as_its_summary(
    tmp_path: Path,
) -> None:
    """R78: a user's mistake is data, not a Java stack trace; and it travels."""
    [summary] = run_task(a_plan(tmp_path, "no_such_module_here:app"), iter([3]))

    arrived = pickle.loads(pickle.dumps(summary))

    assert (arrived.partition, arrived.end) == (3, TaskEnd.FAILED)
    assert "there is no module 'no_such_module_here'" in str(arrived.failures[""])


def test_when_a_task_does_not_see_the_ledger_then_it_says_so(tmp_path: Path) -> None:
    """R78: a folder that only the driver has would lose every outcome."""
    plan = a_plan(tmp_path, "os:app", run_folder=tmp_path / "elsewhere")

    [summary] = run_task(plan, iter([0]))

    failure = summary.failures[""]
    assert isinstance(failure, ConfigurationError)
    assert (failure.field, failure.value) == ("ledger", str(tmp_path))
    assert "does not see this folder" in failure.remedy


def test_when_a_plan_travels_then_it_arrives_whole(tmp_path: Path) -> None:
    """R78: plans survive pickling, and do not show the URL's secrets."""
    plan = a_plan(tmp_path, "orders:app", gateway="sqs://eu-west-1?secret=s3cret")

    arrived = pickle.loads(pickle.dumps(plan))

    assert arrived.app_reference == plan.app_reference
    assert arrived.gateway == plan.gateway
    assert arrived.ledger.folder == tmp_path
    assert "s3cret" not in repr(plan)
