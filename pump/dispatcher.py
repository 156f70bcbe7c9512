"""Dispatcher: runs all pumps of an app, restarts those that fail, and ends them together."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta

import attrs

from .backoff import Backoff
from .errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    GatewayError,
    PumpError,
    QueueNotFound,
    Throttled,
)
from .events import PumpStateEvent
from .loop import Pump, PumpStats
from .observability import vocabulary
from .observability.log import get_logger
from .recorder import Recorder
from .runtime import Runtime
from .subscription import Subscription
from .sweeper import Sweeper

_log = get_logger("pump.dispatcher")
_RESTART = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(minutes=1))
_LOOK = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(seconds=1))
_STEADY_S = 60.0
"""A pump that ran this long before it failed starts its backoff anew."""


@attrs.define(eq=False)
class Performer:
    """One subscription and the pump that currently serves it."""

    subscription: Subscription
    stats: PumpStats = attrs.field(factory=PumpStats)
    pump: Pump | None = None
    concurrency: int = 0
    state: str = "starting"
    failure: Exception | None = None


class Dispatcher:
    """Supervises one pump a subscription until drained."""

    def __init__(self, runtime: Runtime, subscriptions: Sequence[Subscription]) -> None:
        if not subscriptions:
            raise ConfigurationError(
                "App.subscriptions",
                (),
                "nothing to run; use app.subscribe(Subscription(…))",
            )
        self._runtime = runtime
        self._clock = runtime.clock
        self.performers = [Performer(each, concurrency=each.concurrency) for each in subscriptions]
        self.channels_made = asyncio.Event()
        """Set once every subscription's queues are there, and messages can be sent to them."""
        self._drain_asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping_now = False

    @property
    def is_idle(self) -> bool:
        """Whether no pump has anything in hand."""
        return all(each.pump is None or each.pump.is_idle for each in self.performers)

    @property
    def was_stopped_now(self) -> bool:
        """Whether `stop_now` ended it, and not a drain."""
        return self._is_stopping_now

    def drain(self) -> None:
        """Have every pump finish what it started, and stop."""
        self._drain_asked.set()
        for performer in self.performers:
            if performer.pump is not None:
                performer.pump.drain()

    def stop_now(self) -> None:
        """Cancel what runs and hand everything back."""
        self._is_stopping_now = True
        self.drain()
        for task in self._tasks:
            task.cancel()

    def scale(self, subscription: str, concurrency: int) -> None:
        """Run this many of a subscription's handlers at once."""
        if concurrency < 1:
            raise ConfigurationError("concurrency", concurrency, "use 1 or more")
        performer = self._performer(subscription)
        performer.concurrency = concurrency
        if performer.pump is not None:
            performer.pump.scale(concurrency)

    async def run(self) -> None:
        """Run until drained.

        Raises the failures of pumps that cannot go on, once all others have been drained or
        have stopped too. The failure of one does not stop the others.
        """
        for performer in self.performers:
            await self._make_channels(performer)
        self.channels_made.set()
        background = self._start_background()
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = [
                    group.create_task(self._supervise(each), name=f"pump {each.subscription.name}")
                    for each in self.performers
                ]
        finally:
            for task in background:
                task.cancel()
            await asyncio.wait(background)
        failures = [each.failure for each in self.performers if each.failure is not None]
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup("several pumps stopped", failures)

    async def wait_until_empty(self) -> None:
        """Return once every subscribed queue is empty and nothing is in hand.

        Other processes may fill and empty the queues too, so the broker is asked now and then.
        A broker that is away is waited for; `AccessDenied` is raised.
        """
        queues = {performer.subscription.queue for performer in self.performers}
        attempt = 0
        while not (self.is_idle and await self._is_empty(queues)):
            attempt += 1
            await self._clock.sleep(_LOOK.delay_s(attempt, self._clock.chance()))

    async def _is_empty(self, queues: set[str]) -> bool:
        admin = self._runtime.gateway.admin()
        for queue in queues:
            try:
                stats = await admin.stats(queue)
            except QueueNotFound:
                continue
            except AccessDenied:
                raise
            except GatewayError:
                return False  # Who cannot be asked may have messages.
            if stats.visible + stats.in_flight + stats.delayed:
                return False
        return True

    def _start_background(self) -> list[asyncio.Task[None]]:
        runtime = self._runtime
        sweeper = Sweeper(runtime.spill, runtime.gateway, self._clock)
        tasks = [asyncio.create_task(sweeper.run(), name="sweeper")]
        if runtime.handler_times is not None:
            stats = {each.subscription.name: each.stats for each in self.performers}
            recorder = Recorder(runtime.handler_times, stats, self._clock)
            tasks.append(asyncio.create_task(recorder.run(), name="recorder"))
        return tasks

    async def _make_channels(self, performer: Performer) -> None:
        """A queue that is missing or wrong is said at once; a broker that is away is waited for."""
        attempt = 0
        while not self._drain_asked.is_set():
            try:
                await self._runtime.make_channels(performer.subscription)
            except (ConnectionFailed, Throttled) as error:
                attempt += 1
                _log.warning(
                    vocabulary.RECEIVE_FAILED,
                    subscription=performer.subscription.name,
                    error=str(error),
                )
                await self._pause(_RESTART.delay_s(attempt, self._clock.chance()))
            else:
                return

    async def _supervise(self, performer: Performer) -> None:
        failure_count = 0
        while not self._drain_asked.is_set():
            started_s = self._clock.now_s()
            try:
                await self._run_pump(performer)
            except asyncio.CancelledError:
                self._note(performer, "stopped", None)
                raise
            except PumpError as error:
                # A pump that stops by its own decision is not to be restarted.
                self._note(performer, "stopped", error)
                performer.failure = error
                return
            except Exception as error:  # broad: a supervisor restarts whatever broke
                steady = self._clock.now_s() - started_s > _STEADY_S
                failure_count = 1 if steady else failure_count + 1
                self._note(performer, "failed", error)
                performer.stats.restarts += 1
                await self._pause(_RESTART.delay_s(failure_count, self._clock.chance()))
        self._note(performer, "stopped", None)

    async def _run_pump(self, performer: Performer) -> None:
        subscription = performer.subscription
        port = self._runtime.gateway.consumer(subscription)
        router = self._runtime.router(subscription)
        pump = self._runtime.pump(subscription, port, router, performer.stats)
        try:
            with self._in_charge(performer, pump):
                await pump.run()
        finally:
            async with AsyncExitStack() as closing:
                closing.push_async_callback(port.aclose)
                closing.push_async_callback(router.aclose)

    @contextmanager
    def _in_charge(self, performer: Performer, pump: Pump) -> Iterator[None]:
        performer.pump = pump
        if self._drain_asked.is_set():
            pump.drain()
        if performer.concurrency != performer.subscription.concurrency:
            pump.scale(performer.concurrency)
        self._note(performer, "running", None)
        try:
            yield
        finally:
            performer.pump = None

    async def _pause(self, delay_s: float) -> None:
        try:
            async with self._clock.timeout(delay_s):
                await self._drain_asked.wait()
        except TimeoutError:
            return

    def _performer(self, name: str) -> Performer:
        for performer in self.performers:
            if performer.subscription.name == name:
                return performer
        known = ", ".join(each.subscription.name for each in self.performers)
        raise ConfigurationError("subscription", name, f"use one of {known}")

    def _note(self, performer: Performer, state: str, error: Exception | None) -> None:
        performer.state = state
        name = performer.subscription.name
        detail = "" if error is None else repr(error)
        if error is not None:
            # As text: a renderer that shows frames' locals would show bodies and credentials.
            trace = "".join(traceback.format_exception(error))
            _log.error(vocabulary.PUMP_FAILED, subscription=name, error=detail, traceback=trace)
        if self._runtime.emit is not None:
            self._runtime.emit(PumpStateEvent(subscription=name, state=state, detail=detail))
