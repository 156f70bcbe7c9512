"""Driver: plans slices from the depth of the queues, one after the other, until the run ends.

| the queues                      | until empty | otherwise                                  |
|---------------------------------|-------------|--------------------------------------------|
| have messages to receive        | a slice     | a slice                                    |
| only in flight, or delayed      | look again  | look again                                 |
| the same for a while, estimated | one task    | one task                                   |
| are empty                       | ends        | look again, less and less often            |
| gave a slice nothing to settle  | look again  | look again                                 |
| cannot be asked                 | look again  | look again                                 |
| are missing, or access denied   | fails       | fails                                      |

A stop, or the end of `run_for`, lets the slice that runs drain; a second stop kills it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import attrs

from ...app import App
from ...backoff import Backoff
from ...clock import Clock
from ...errors import ConnectionFailed, CredentialsExpired, PoolExhausted, StorageFailed, Throttled
from ...gateway_url import gateway_from_url
from ...observability import vocabulary
from ...observability.log import get_logger
from ...performer import LOOK_AGAIN_S, looks_needed
from ...ports import Gateway
from ...runtime import check_support
from ...subscription import Subscription
from .plan import (
    Cluster,
    Depth,
    Probing,
    RunFolder,
    SliceFailed,
    SparkRunOptions,
    TaskPlan,
    count_tasks,
    handful,
)
from .summary import Ended, SliceSummary, SparkRun, TaskSummary, added

_log = get_logger("pump.spark")
_LOOK = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=5), jitter=0.2)
_PASSING = (ConnectionFailed, Throttled, PoolExhausted, CredentialsExpired)
"""What a broker may be for a while."""
_WATCH_S = 1.0
"""How often depth is shown while a slice runs."""


class RunDriver:
    """One run. `run` it once; `stop` ends it cooperatively, and called again at once."""

    def __init__(
        self,
        app: App,
        options: SparkRunOptions,
        plan: TaskPlan,
        cluster: Cluster,
        listener: Listener,
    ) -> None:
        self._counters = app.counters
        self._subscriptions = list(app.subscriptions)
        self._options = options
        self._plan = plan
        self._cluster = cluster
        self._listener = listener
        self._clock: Clock = app.clock
        self._gateway: Gateway = app.built_gateway()
        self._folder = RunFolder(plan.run_folder)
        self._slices: list[SliceSummary] = []
        self._failures: dict[str, Exception] = {}
        self._stop_asked = asyncio.Event()
        self._is_time_over = False
        self._running: asyncio.Task[list[TaskSummary]] | None = None
        self._is_forced = False
        self._probing = Probing()

    def stop(self) -> None:
        """Have the tasks drain and start no more; asked again, kill them."""
        if self._stop_asked.is_set() and not self._is_time_over:
            self._is_forced = True
            if self._running is not None:
                self._running.cancel()
        self._is_time_over = False
        self._stop_asked.set()

    async def run(self) -> SparkRun:
        """Run slices until the run ends; what a pump stopped by is in the summary."""
        started_s = self._clock.now_s()
        await self._gateway.open()
        telling = asyncio.create_task(self._tell_tasks(), name="stop")
        try:
            with self._timed():
                await self._make_channels()
                ended = await self._run_slices()
        finally:
            telling.cancel()
            await asyncio.wait([telling])
            await self._gateway.aclose()
        return SparkRun(
            ended=ended,
            slices=tuple(self._slices),
            run_s=self._clock.now_s() - started_s,
            counts=added(each.counts for each in self._slices),
            failure=_failure(list(self._failures.values())),
        )

    @contextmanager
    def _timed(self) -> Iterator[None]:
        if self._options.run_for is None:
            yield
            return
        timer = self._clock.call_later(self._options.run_for.total_seconds(), self._end_time)
        try:
            yield
        finally:
            timer.cancel()

    def _end_time(self) -> None:
        if not self._stop_asked.is_set():
            self._is_time_over = True
            self._stop_asked.set()

    async def _tell_tasks(self) -> None:
        """Mark the stop where the tasks look; those that cannot be told end with their slice."""
        await self._stop_asked.wait()
        try:
            await asyncio.to_thread(self._folder.ask_stop)
        except StorageFailed as error:
            self._complain(error)

    async def _run_slices(self) -> Ended:
        idle_count = empty_looks = 0
        while True:
            if self._stop_asked.is_set():
                return self._stopped()
            depth = await self._depth()
            tasks = 0 if depth is None else await self._count_tasks(depth)
            empty_looks = empty_looks + 1 if depth is not None and not depth.total else 0
            if tasks:
                if not await self._run_slice(tasks):
                    return Ended.FORCED
                if "" in self._failures or not self._awaited:
                    return Ended.FAILED
                if self._slices[-1].settled:
                    idle_count, self._probing = 0, Probing()
                    continue
            elif empty_looks and self._options.until_empty:
                if empty_looks < looks_needed(self._gateway):
                    await self._pause(LOOK_AGAIN_S)
                    continue
                if await self._is_empty_to_others():
                    return Ended.FAILED if self._failures else Ended.EMPTY
                empty_looks = 0
            idle_count += 1
            await self._pause(_LOOK.delay_s(idle_count, self._clock.chance()))

    def _stopped(self) -> Ended:
        if self._is_forced:
            return Ended.FORCED
        return Ended.TIME if self._is_time_over else Ended.STOPPED

    @property
    def _awaited(self) -> list[Subscription]:
        """The subscriptions whose pumps have not stopped for good."""
        return [each for each in self._subscriptions if each.name not in self._failures]

    async def _count_tasks(self, depth: Depth) -> int:
        if not depth.ready:
            is_exact = self._gateway.capabilities.has_exact_stats
            return int(not is_exact and self._probing.is_due(depth, self._clock.now_s()))
        return count_tasks(
            depth.ready,
            handful=handful(self._awaited, flush=self._options.flush),
            slots=await self._cluster.slots(),
            most=self._options.tasks,
        )

    async def _run_slice(self, tasks: int) -> bool:
        """Run a slice, and say whether it came to its end."""
        number = len(self._slices) + 1
        started_s = self._clock.now_s()
        plan = attrs.evolve(self._plan, stopped=frozenset(self._failures))
        self._listener.slice_started(number, tasks)
        self._running = asyncio.create_task(self._cluster.run(plan, tasks), name="slice")
        watching = asyncio.create_task(self._watch(), name="depth")
        try:
            await asyncio.wait([self._running])
        finally:
            watching.cancel()
            self._running.cancel()
            await asyncio.wait([watching, self._running])
        if self._running.cancelled() or self._is_forced:
            return False
        error = self._running.exception()
        if isinstance(error, SliceFailed):
            self._failures[""] = error
            return True
        done = SliceSummary(
            number=number,
            tasks=tuple(self._running.result()),
            run_s=self._clock.now_s() - started_s,
        )
        self._note(done)
        return True

    def _note(self, done: SliceSummary) -> None:
        self._slices.append(done)
        for name, error in done.failures.items():
            if isinstance(error, _PASSING):
                self._complain(error)
            else:
                self._failures.setdefault(name, error)
        for task in done.tasks:
            for name, count in task.losses.items():
                self._counters.add(name, count)
        _log.info(
            vocabulary.SLICE_ENDED,
            count=len(done.tasks),
            messages=done.settled,
            run_s=round(done.run_s, 3),
        )
        self._listener.slice_ended(done)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(_WATCH_S)
            await self._depth()

    async def _depth(self, gateway: Gateway | None = None) -> Depth | None:
        """What is in the queues; None while the broker cannot be asked."""
        admin = (gateway or self._gateway).admin()
        queues = sorted({each.queue for each in self._awaited})
        try:
            depth = Depth.of([await admin.stats(queue) for queue in queues])
        except _PASSING as error:
            self._complain(error)
            return None
        self._listener.looked(depth)
        return depth

    async def _is_empty_to_others(self) -> bool:
        """Whether a gateway that is new says so too, where ours only estimates: that of RabbitMQ
        learns late of the queues in which tasks have put their retries to wait.
        """
        url = self._plan.gateway
        if url is None or self._gateway.capabilities.has_exact_stats:
            return True
        new = gateway_from_url(url, self._clock)
        try:
            await new.open()
            depth = await self._depth(new)
        except _PASSING as error:
            self._complain(error)
            return False
        finally:
            await new.aclose()
        return depth is not None and not depth.total

    async def _make_channels(self) -> None:
        """A queue that is missing or wrong is said before anything is started."""
        attempt = 0
        while not self._stop_asked.is_set():
            try:
                for subscription in self._subscriptions:
                    check_support(subscription, self._gateway)
                    for spec in subscription.queue_specs():
                        await self._gateway.admin().ensure(spec, subscription.make_channels)
                return
            except (ConnectionFailed, Throttled) as error:
                self._complain(error)
                attempt += 1
                await self._pause(_LOOK.delay_s(attempt, self._clock.chance()))

    async def _pause(self, delay_s: float) -> None:
        try:
            async with self._clock.timeout(delay_s):
                await self._stop_asked.wait()
        except TimeoutError:
            return

    def _complain(self, error: Exception) -> None:
        _log.warning(vocabulary.RECEIVE_FAILED, error=str(error), error_type=type(error).__name__)


def _failure(failures: Sequence[Exception]) -> Exception | None:
    if len(failures) > 1:
        return ExceptionGroup("several pumps stopped", failures)
    return failures[0] if failures else None


# Listeners: told how a run gets on; a progress bar, for instance.


class Listener(Protocol):
    """Told on the driver's event loop: be quick, and raise nothing."""

    def looked(self, depth: Depth) -> None:
        """The queues were asked."""

    def slice_started(self, number: int, tasks: int) -> None:
        """A job is given to Spark."""

    def slice_ended(self, done: SliceSummary) -> None:
        """It has come to its end."""


class Silent:
    """Listens to nothing."""

    def looked(self, depth: Depth) -> None:
        """Nothing to do."""

    def slice_started(self, number: int, tasks: int) -> None:
        """Nothing to do."""

    def slice_ended(self, done: SliceSummary) -> None:
        """Nothing to do."""
