"""Whole runs: the driver's loop, with tasks that run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from pump import Backoff, DeferMessage, RejectMessage, Subscription
from pump.clock import SYSTEM_CLOCK, SystemClock, Timer
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    QueueNotFound,
    UnacceptableLimitReached,
)
from pump.events import Event, PumpStateEvent
from pump.message import Message
from pump.observability import vocabulary
from pump.ports import AdminPort, QueueStats
from pump.spark.run.plan import HOME, SliceFailed, TaskPlan
from pump.spark.run.running import Stops
from pump.spark.run.summary import Counts, Ended, TaskEnd, TaskSummary
from pump.subscription import MakeChannels, UnacceptableLimit
from tests.core.faulty_gateway import FaultyGateway

from .rig import DEAD, QUEUE, Here, Order, Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_when_the_queues_are_emptied_then_the_run_ends_with_its_sums(rig: Rig) -> None:
    """R78: until empty, slice by slice, and nothing is left behind but the ledger."""
    sent = await rig.send(25)
    cluster = Here(rig)

    run = await rig.run(cluster, until_empty=True, slice_messages=10)

    assert run.ended is Ended.EMPTY
    assert [each.settled for each in run.slices] == [10, 10, 5]
    assert run.counts == {QUEUE: Counts(received=25, processed=25)}
    assert run.settled == 25
    assert sorted(row[0] for row in rig.rows()) == sorted(sent)
    assert list((rig.folder / HOME).iterdir()) == []
    assert list((rig.folder / "_journal").iterdir()) == []


async def test_when_nothing_is_there_then_no_slice_is_started(rig: Rig) -> None:
    """R78: no job for an empty queue."""
    cluster = Here(rig)

    run = await rig.run(cluster, until_empty=True)

    assert (run.ended, run.slices, cluster.asked) == (Ended.EMPTY, (), [])


async def test_when_messages_are_delayed_then_the_run_waits_for_them(rig: Rig) -> None:
    """R78: empty means nothing in flight and nothing delayed either."""
    await rig.send(0)
    async with rig.app:
        for spec in rig.subscription.queue_specs():
            await rig.app.admin.ensure(spec, MakeChannels.CREATE)
        await rig.app.post(Order(n=5), delay=timedelta(milliseconds=400))

    run = await rig.run(until_empty=True)

    assert run.ended is Ended.EMPTY
    assert rig.handled == [5]


async def test_when_the_queue_is_deep_then_there_are_as_many_tasks_as_slots(rig: Rig) -> None:
    """R78: back-pressure from depth to tasks."""
    await rig.send(35)
    cluster = Here(rig, slots=3)

    await rig.run(cluster, until_empty=True)

    assert cluster.asked == [3]


async def test_when_a_stop_is_asked_for_then_the_slice_drains_and_none_follows(
    tmp_path: Path,
) -> None:
    """R78: cooperative stop."""
    rig = Rig(tmp_path, prefetch=0)
    await rig.send(30)
    stops = Stops()
    draining = asyncio.Event()
    rig.app.observe(lambda event: draining.set() if is_draining(event) else None)

    async def stop(order: Order) -> None:
        if len(rig.handled) == rig.subscription.concurrency:
            stops.ask()
        await draining.wait()

    rig.behaviour = stop
    run = await rig.run(stops=stops)

    assert run.ended is Ended.STOPPED
    assert [each.tasks[0].end for each in run.slices] == [TaskEnd.STOPPED]
    assert run.settled == len(rig.rows()) == rig.subscription.concurrency


async def test_when_a_stop_came_before_the_run_began_then_it_ends_at_once(rig: Rig) -> None:
    """R78: a signal while Spark starts is not forgotten."""
    await rig.send(3)
    stops = Stops()
    stops.ask()

    run = await rig.run(stops=stops)

    assert (run.ended, run.slices) == (Ended.STOPPED, ())
    assert await rig.depth() == 3


async def test_when_a_stop_is_asked_for_twice_then_the_tasks_are_killed(rig: Rig) -> None:
    """R78: a second signal cancels the job; what was held comes again."""
    await rig.send(3)
    stops = Stops()

    async def hang(order: Order) -> None:
        stops.ask()
        if len(rig.handled) == 3:
            await asyncio.Event().wait()

    rig.behaviour = hang
    cluster = Here(rig)
    run = await rig.run(cluster, stops=stops)

    assert (run.ended, cluster.killed_count) == (Ended.FORCED, 1)
    assert await rig.depth() >= 1


class Hourglass(SystemClock):
    """The machine's clock, but for one timer, which runs out when it is told to."""

    def __init__(self, length: timedelta) -> None:
        self._length_s = length.total_seconds()
        self.run_out: Callable[[], object] | None = None

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        if delay_s == self._length_s:
            self.run_out = callback
        return super().call_later(delay_s, callback)


async def test_when_the_time_is_over_then_the_run_ends(rig: Rig) -> None:
    """R78: `--for`; what was begun is finished."""
    await rig.send(3)
    run_for = timedelta(hours=1)
    clock = rig.app._clock = Hourglass(run_for)

    async def end_time(order: Order) -> None:
        if len(rig.handled) == 3:
            assert clock.run_out is not None
            clock.run_out()

    rig.behaviour = end_time
    run = await rig.run(run_for=run_for)

    assert run.ended is Ended.TIME
    assert run.settled == 3


async def test_when_a_pump_stops_by_itself_then_the_others_go_on_and_the_run_fails(
    tmp_path: Path,
) -> None:
    """R78: as `pump run`: the failure of one does not stop the others, and is said at the end."""
    rig = Rig(tmp_path, unacceptable_limit=UnacceptableLimit(count=2))
    rig.app.subscribe(Subscription(queue="others", request=Order, dead_letter_queue=DEAD))
    async with rig.app:
        for spec in (each for sub in rig.app.subscriptions for each in sub.queue_specs()):
            await rig.app.admin.ensure(spec, MakeChannels.CREATE)
        junk = [Message(body=b"{", type="Order", content_type="application/json")] * 5
        await rig.app.gateway.producer(QUEUE).send(junk)
        await rig.app.post_all([Order(n=n) for n in range(8)], queue="others")
    cluster = Here(rig)

    run = await rig.run(cluster, until_empty=True, slice_messages=6)

    assert run.ended is Ended.FAILED
    assert isinstance(run.failure, UnacceptableLimitReached)
    assert run.counts["others"].processed == 8
    assert cluster.plans[0].stopped == frozenset()
    assert cluster.plans[-1].stopped == {QUEUE}


async def test_when_every_pump_has_stopped_then_the_run_ends(tmp_path: Path) -> None:
    """R78: nothing is left to do, whatever is in the queue."""
    rig = Rig(tmp_path, unacceptable_limit=UnacceptableLimit(count=2))
    async with rig.app:
        for spec in rig.subscription.queue_specs():
            await rig.app.admin.ensure(spec, MakeChannels.CREATE)
        junk = [Message(body=b"{", type="Order", content_type="application/json")] * 50
        await rig.app.gateway.producer(QUEUE).send(junk)

    run = await rig.run()

    assert run.ended is Ended.FAILED
    assert isinstance(run.failure, UnacceptableLimitReached)


class GivesUp(Here):
    """A cluster whose tasks die, again and again."""

    async def run(self, plan: TaskPlan, tasks: int) -> list[TaskSummary]:
        raise SliceFailed("Task 0 failed 4 times")


async def test_when_spark_gives_a_slice_up_then_the_run_fails_with_what_it_said(rig: Rig) -> None:
    """R78: a job that fails is one clear error."""
    await rig.send(1)

    run = await rig.run(GivesUp(rig))

    assert run.ended is Ended.FAILED
    assert "Task 0 failed 4 times" in str(run.failure)


class Unsure(Here):
    """A cluster whose first tasks bring nothing but an error."""

    def __init__(self, rig: Rig, error: Exception) -> None:
        super().__init__(rig)
        self._error = error

    async def run(self, plan: TaskPlan, tasks: int) -> list[TaskSummary]:
        if len(self.asked) < 2:
            self.asked.append(tasks)
            failures = {"": self._error}
            return [TaskSummary(partition=0, end=TaskEnd.FAILED, failures=failures)]
        return await super().run(plan, tasks)


async def test_when_a_task_cannot_reach_the_broker_for_a_while_then_the_run_goes_on(
    rig: Rig,
) -> None:
    """R78: a broker that is away is waited for."""
    await rig.send(4)

    run = await rig.run(Unsure(rig, ConnectionFailed("sqs", "refused")), until_empty=True)

    assert (run.ended, run.settled, len(run.slices)) == (Ended.EMPTY, 4, 3)


async def test_when_a_task_cannot_load_the_app_then_the_run_ends_and_says_so(rig: Rig) -> None:
    """R78: a user's mistake in a task is one clear error on the driver."""
    await rig.send(4)
    mistake = ConfigurationError("app", "orders", "install it")

    run = await rig.run(Unsure(rig, mistake), until_empty=True)

    assert (run.ended, run.failure, len(run.slices)) == (Ended.FAILED, mistake, 1)


async def test_when_the_broker_is_away_at_first_then_it_is_waited_for(rig: Rig) -> None:
    """R78: as `pump run` does."""
    await rig.send(2)
    rig.gateway.fail("ensure", ConnectionFailed("memory", "refused"), times=2)
    rig.gateway.fail("queues", ConnectionFailed("memory", "refused"), times=1)

    run = await rig.run(until_empty=True)

    assert (run.ended, run.settled) == (Ended.EMPTY, 2)


@pytest.mark.parametrize("error", [AccessDenied("orders", "receive"), QueueNotFound("orders")])
async def test_when_the_queue_is_missing_or_denied_then_it_is_said_before_anything_starts(
    rig: Rig, error: Exception
) -> None:
    """R78: what a person must fix is said at once."""
    rig.gateway.fail("ensure", error)
    cluster = Here(rig)

    with pytest.raises(type(error)):
        await rig.run(cluster)

    assert cluster.asked == []


async def test_when_a_queue_that_is_assumed_is_missing_then_it_is_said(tmp_path: Path) -> None:
    """R78: `MakeChannels.ASSUME` checks nothing; the first look does."""
    rig = Rig(tmp_path, make_channels=MakeChannels.ASSUME)

    with pytest.raises(QueueNotFound):
        await rig.run()


async def test_when_tasks_discard_messages_then_the_drivers_app_counts_them(
    tmp_path: Path,
) -> None:
    """R78: the summary warns of what is gone, wherever it went."""
    rig = Rig(tmp_path, dead_letter_queue=None)
    await rig.send(2)

    async def refuse(order: Order) -> None:
        raise RejectMessage("no")

    rig.behaviour = refuse
    run = await rig.run(until_empty=True)
    [done] = run.slices

    assert run.counts[QUEUE].dead_lettered == 2
    assert done.tasks[0].losses == {vocabulary.DISCARDED: 2}


class Forgetful(FaultyGateway):
    """As NATS: what was received once, and comes again, is in flight until it is received."""

    def admin(self) -> AdminPort:
        return _ForgetfulAdmin(super().admin(), self)


@attrs.frozen
class _ForgetfulAdmin:
    inner: AdminPort
    gateway: Forgetful

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def stats(self, queue: str) -> QueueStats:
        stats = await self.inner.stats(queue)
        known = {each.message.id for each in self.gateway.record.received}
        fresh = [each for each in await self.inner.peek(queue) if each.id not in known]
        rest = stats.visible + stats.in_flight + stats.delayed - len(fresh)
        return attrs.evolve(stats, visible=len(fresh), in_flight=rest, delayed=0)


async def test_when_retries_count_as_in_flight_until_received_then_somebody_receives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: no broker says when they are due, and nobody else would ask for them."""
    soon = Backoff(initial=timedelta(milliseconds=300), jitter=0)
    monkeypatch.setattr("pump.spark.run.plan._PROBE", soon)
    forgetful = Forgetful(SYSTEM_CLOCK, is_shared=True, spans_machines=True, has_exact_stats=False)
    rig = Rig(tmp_path, forgetful)
    await rig.send(2)

    async def fail_once(order: Order) -> None:
        if rig.handled.count(order.n) == 1:
            raise DeferMessage(timedelta(seconds=3))  # longer than its task looks

    rig.behaviour = fail_once
    run = await rig.run(until_empty=True)

    assert (run.ended, run.counts[QUEUE].processed) == (Ended.EMPTY, 2)
    assert sorted(rig.handled) == [0, 0, 1, 1]


def is_draining(event: Event) -> bool:
    return isinstance(event, PumpStateEvent) and event.state == "draining"
