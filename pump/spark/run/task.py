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
from collections.abc import Collection, Iterable, Iterator

import attrs

from ...app import App
from ...clock import Clock
from ...dispatcher import Dispatcher
from ...errors import ConfigurationError, GatewayError, PumpError, text_of, trace_of
from ...event_loop import run
from ...ports import AdminPort, Gateway
from ...subscription import OnRoutingFailure, Subscription
from .outcomes import Gate, OutcomeLedger, OutcomesFirst
from .plan import Depth, RunFolder, TaskFailed, TaskPlan, check_same, unpacked
from .summary import Counts, TaskEnd, TaskSummary, losses


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
    app = unpacked(plan.app_reference)
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
    trace = trace_of(error)
    return TaskFailed(f"{type(error).__name__}: {text_of(error)}", trace)


# Task end: when a task has done its part. Pure.

QUIET_S = 0.2
"""Nothing came or went for this long: then it is worth asking whether the queues are empty."""
SILENT_S = 5.0
"""Nothing came for this long, and a receive came back empty, whatever the estimate says."""
SPEECHLESS_S = 60.0
"""Nothing came for this long, and no receive came back at all: another task may do better."""
GRACE_S = 30.0
"""How long what is in flight may take at the end of a slice; then the rest is handed back."""


@attrs.frozen(kw_only=True)
class TaskState:
    """What is known of a running task."""

    is_stop_asked: bool = False
    has_quota: bool = True
    """Whether more may be received."""
    has_time: bool = True
    in_flight: int = 0
    quiet_s: float = 0.0
    """How long nothing came or went."""
    empty_looks: int = 0
    """Receives since then that came back without a message."""
    ready: int | None = None
    """What could be received, when that is known."""
    in_flight_elsewhere: int = 0
    """What is said to be in other hands then; a receive may bring it all the same."""


def task_end(state: TaskState) -> TaskEnd | None:
    """Why the task is to receive nothing more; None to go on."""
    if state.is_stop_asked:
        return TaskEnd.STOPPED
    if not state.has_time:
        return TaskEnd.TIME
    if not state.has_quota:
        return TaskEnd.MESSAGES
    if state.in_flight or state.quiet_s < QUIET_S:
        return None
    silent_s = SILENT_S if state.empty_looks else SPEECHLESS_S
    is_empty = state.ready == 0 and (state.empty_looks > 0 or not state.in_flight_elsewhere)
    return TaskEnd.EMPTY if is_empty or state.quiet_s >= silent_s else None


# Slice watch: sees when a task has done its part, and that it ends without costing an attempt.
#
# Where every delivery counts, as on SQS, a message that is handed back untried has lost an attempt.
# So only a stop hands back. At the end of a slice the gate is closed, the receives under way come
# back, and what they bring is handled too.

_LOOK_S = 0.05
_MARKER_EVERY_S = 0.5
_ASK_EVERY_S = 0.5


class SliceWatch:
    """Watches one task."""

    def __init__(
        self, gate: Gate, folder: RunFolder, clock: Clock, *, time_s: float, queues: Collection[str]
    ) -> None:
        self._gate = gate
        self._folder = folder
        self._clock = clock
        self._ends_s = clock.now_s() + time_s
        self._queues = sorted(set(queues))
        self._is_stop_asked = False
        self._marker_seen_s = float("-inf")
        self._asked_s = float("-inf")
        self._depth: Depth | None = None

    async def wait(self, admin: AdminPort) -> TaskEnd:
        """Return, with the reason, once the task is to drain."""
        while (end := task_end(await self._state(admin))) is None:
            await self._clock.sleep(_LOOK_S)
        self._gate.close()
        if end is not TaskEnd.STOPPED and not self._is_all_gone:
            await self._finish()
        return end

    @property
    def _is_all_gone(self) -> bool:
        """Whether the queues are empty, so that no receive under way can bring anything."""
        is_empty = self._depth is not None and not self._depth.total
        return is_empty and not self._gate.in_flight

    async def _finish(self) -> None:
        """Let come what was asked for, and have it handled; a stop cuts it short."""
        until_s = self._clock.now_s() + GRACE_S
        while not self._gate.is_still and self._clock.now_s() < until_s:
            await self._look_for_marker()
            if self._is_stop_asked:
                return
            await self._clock.sleep(_LOOK_S)

    async def _state(self, admin: AdminPort) -> TaskState:
        await self._look_for_marker()
        self._depth = await self._asked(admin)
        now_s = self._clock.now_s()
        return TaskState(
            is_stop_asked=self._is_stop_asked,
            has_quota=not self._gate.is_full,
            has_time=now_s < self._ends_s,
            in_flight=self._gate.in_flight,
            quiet_s=now_s - self._gate.moved_at_s,
            empty_looks=self._gate.empty_looks,
            ready=None if self._depth is None else self._depth.ready,
            in_flight_elsewhere=0 if self._depth is None else self._depth.in_flight,
        )

    async def _look_for_marker(self) -> None:
        now_s = self._clock.now_s()
        if now_s - self._marker_seen_s >= _MARKER_EVERY_S:
            # In a thread: a network's file system may take its time.
            self._is_stop_asked = await asyncio.to_thread(lambda: self._folder.is_stop_asked)
            self._marker_seen_s = now_s

    async def _asked(self, admin: AdminPort) -> Depth | None:
        """What is in the queues, asked now and then while nothing moves; None when not known."""
        now_s = self._clock.now_s()
        is_quiet = not self._gate.in_flight and now_s - self._gate.moved_at_s >= QUIET_S
        if not is_quiet or now_s - self._asked_s < _ASK_EVERY_S:
            return None
        self._asked_s = now_s
        try:
            return Depth.of([await admin.stats(queue) for queue in self._queues])
        except GatewayError:
            return None  # A gateway that cannot be asked may have messages.
