"""Task: one bounded run of the ordinary pumps, in a Python worker of Spark's.

| step    | what                                                                              |
|---------|-----------------------------------------------------------------------------------|
| load    | the app, by name or by value; an error of the user's is returned, not raised      |
| pump    | until the slice's messages or time are over, nothing is left, or a stop is asked  |
| drain   | what was received is finished and settled, each after its outcome is durable      |
| close   | the journal becomes a Parquet file; one summary row is returned                   |

What is raised here is a defect, or a machine's: Spark then tries the task again.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable, Iterator

import attrs

from ...app import App
from ...clock import Clock
from ...dispatcher import Dispatcher
from ...errors import ConfigurationError, PumpError, text_of
from ...event_loop import run
from ...ports import Gateway
from ...subscription import OnRoutingFailure, Subscription
from .errors import TaskFailed
from .gate import Gate
from .outcome_ledger import OutcomeLedger
from .outcomes_first import OutcomesFirst
from .plan import TaskPlan
from .run_folder import RunFolder
from .slice_watch import SliceWatch
from .summary import Counts, TaskEnd, TaskSummary, losses
from .travelling import check_same, unpacked


def run_task(plan: TaskPlan, partition: Iterable[int]) -> Iterator[TaskSummary]:
    """Run one task and yield its summary. What Spark calls, in a process of its own."""
    [number] = partition
    if plan.prepare is not None:
        plan.prepare()
    try:
        app = _loaded(plan)
    except Exception as error:  # broad: a user's module may raise anything; the driver says it
        failures = {"": _portable(error)}
        yield TaskSummary(partition=number, end=TaskEnd.FAILED, failures=failures)
        return
    yield run(TaskRun(plan, app, number).run())


def _loaded(plan: TaskPlan) -> App:
    if not RunFolder(plan.run_folder).exists:
        raise ConfigurationError(
            "ledger",
            str(plan.ledger.folder),
            "a task's machine does not see this folder; name one that is shared by all of them",
        )
    app = unpacked(plan.luggage)
    check_same(app, plan.subscriptions)
    app.override(gateway=plan.gateway, concurrency=plan.concurrency)
    app.check()
    return app


class TaskRun:
    """A loaded app's run in one task."""

    def __init__(self, plan: TaskPlan, app: App, number: int) -> None:
        self._plan = plan
        self._app = app
        self._number = number
        self._clock: Clock = app.clock
        self._started_s = self._clock.now_s()
        self._gate = Gate(plan.messages, self._clock)
        self._end = TaskEnd.FAILED

    async def run(self) -> TaskSummary:
        """Open, pump, drain, close. An error of ours is in the summary."""
        failures: dict[str, Exception] = {}
        counts: dict[str, Counts] = {}
        before = losses(self._app.counters)
        ledger = OutcomeLedger(self._plan.ledger)
        first: list[OutcomesFirst] = []

        def through(gateway: Gateway) -> Gateway:
            wrapped = OutcomesFirst(
                gateway, ledger, self._gate, flush=self._plan.flush, clock=self._clock
            )
            first.append(wrapped)
            return wrapped

        try:
            with self._app.diverted(through, ledger, [lambda event: first[0].note(event)]):
                async with self._app:
                    dispatcher = self._app.dispatcher(self._subscriptions())
                    failures = await self._pump(dispatcher)
                    counts = _counts(dispatcher)
        except PumpError as error:
            failures = {**failures, "": _portable(error)}
        return TaskSummary(
            partition=self._number,
            end=self._end,
            counts=counts,
            run_s=self._clock.now_s() - self._started_s,
            failures=failures,
            losses=losses(self._app.counters) - before,
        )

    def _subscriptions(self) -> list[Subscription]:
        chosen = [each for each in self._app.subscriptions if each.name not in self._plan.stopped]
        if self._plan.is_disk_shared or self._app.is_spill_chosen:
            return chosen
        return [_kept(each) for each in chosen]

    async def _pump(self, dispatcher: Dispatcher) -> dict[str, Exception]:
        """Run until it is time to drain, and return what stopped pumps for good."""
        watching = asyncio.create_task(self._drain_in_time(dispatcher), name="slice")
        try:
            await dispatcher.run()
        except (PumpError, ExceptionGroup) as error:
            failures = {
                each.subscription.name: _portable(each.failure)
                for each in dispatcher.performers
                if each.failure is not None
            }
            return failures or {"": _portable(error)}
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        if not watching.cancelled():
            watching.result()
        return {}

    async def _drain_in_time(self, dispatcher: Dispatcher) -> None:
        watch = SliceWatch(
            self._gate,
            RunFolder(self._plan.run_folder),
            self._clock,
            time_s=self._plan.time_s,
            queues=[each.subscription.queue for each in dispatcher.performers],
        )
        try:
            self._end = await watch.wait(self._app.admin)
        finally:
            dispatcher.drain()


def _kept(subscription: Subscription) -> Subscription:
    """An executor's disk goes with it: what cannot be routed is kept in its queue instead."""
    if subscription.on_routing_failure is not OnRoutingFailure.SPILL:
        return subscription
    return attrs.evolve(subscription, on_routing_failure=OnRoutingFailure.KEEP)


def _counts(dispatcher: Dispatcher) -> dict[str, Counts]:
    return {each.subscription.name: Counts.of(each.stats) for each in dispatcher.performers}


def _portable(error: Exception) -> Exception:
    """The error, or its words: the driver may not know a class that only the task has."""
    if type(error).__module__.startswith("pump."):
        return error
    if isinstance(error, ExceptionGroup):
        return TaskFailed("; ".join(text_of(each) for each in error.exceptions))
    if isinstance(error, ModuleNotFoundError):
        return ConfigurationError(
            "app",
            error.name,
            "a task's Python has no module of that name; install it on every machine, or send it "
            "along: --py-files, or spark.sparkContext.addPyFile(…)",
        )
    trace = "".join(traceback.format_exception(error))
    return TaskFailed(f"{type(error).__name__}: {text_of(error)}", trace)
