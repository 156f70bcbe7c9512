"""Dispatcher: runs all pumps of an app, restarts those that fail, and ends them together.

Each can be paused, resumed, drained and scaled by its subscription's name; `performer.py` has the
states, and what asking does in each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from functools import partial

import attrs

from .backoff import Backoff
from .clock import Clock
from .errors import (
    ConfigurationError,
    ConnectionFailed,
    PumpError,
    SendFailed,
    StorageFailed,
    Throttled,
    text_of,
    trace_of,
)
from .events import PumpStateEvent
from .findings import HandlerTimes
from .loop import Pump, PumpStats
from .loop.processing import ending_the_program
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Telemetry
from .performer import STEADY_S, ControlRefused, DesiredState, IdleDetector, Performer, PumpState
from .ports import Gateway
from .runtime import Runtime
from .stores.handler_times import HandlerTimesFile
from .stores.spill import SpilledMessage, SpillStore
from .subscription import MakeChannels, Subscription

_log = get_logger("pump.dispatcher")
_RESTART = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(minutes=1))


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
        self._idle_detector = IdleDetector(
            self.performers, runtime.gateway, self._clock, runtime.outbox
        )

    @property
    def runtime(self) -> Runtime:
        """The open parts of the app that is run."""
        return self._runtime

    @property
    def is_idle(self) -> bool:
        """Whether no pump has anything in flight."""
        return self._idle_detector.is_idle

    @property
    def is_draining(self) -> bool:
        """Whether the whole app was told to end."""
        return self._drain_asked.is_set()

    @property
    def was_stopped_now(self) -> bool:
        """Whether `stop_now` ended it, and not a drain."""
        return self._is_stopping_now

    def drain(self, subscription: str | None = None) -> None:
        """Have every pump finish what it started, and stop for good.

        With a subscription's name only its pump; the others run on, and so does the dispatcher,
        even if all have been drained one by one: `resume` starts a drained one again.
        """
        if subscription is not None:
            self._controllable(subscription).ask(DesiredState.DRAIN)
            return
        self._drain_asked.set()
        for performer in self.performers:
            performer.wake()
            if performer.pump is not None:
                performer.pump.drain()

    def pause(self, subscription: str) -> None:
        """Have a subscription receive nothing more until it is resumed; restarts included.

        What is in flight runs to its end, with its leases kept.
        """
        performer = self._controllable(subscription)
        performer.ask(DesiredState.PAUSE)
        if performer.state == PumpState.RUNNING:
            _log.info(vocabulary.PUMP_PAUSED, subscription=subscription)
            self._note(performer, PumpState.PAUSED)

    def resume(self, subscription: str) -> None:
        """Have a paused subscription receive again, and a drained one start again."""
        performer = self._controllable(subscription)
        performer.ask(DesiredState.RUN)
        if performer.state == PumpState.PAUSED:
            _log.info(vocabulary.PUMP_RESUMED, subscription=subscription)
            self._note(performer, PumpState.RUNNING)

    def stop_now(self) -> None:
        """Cancel what runs and hand everything back."""
        self._is_stopping_now = True
        self.drain()
        for task in self._tasks:
            task.cancel()

    def scale(self, subscription: str, concurrency: int) -> None:
        """Run this many of a subscription's handlers at once, now and after a restart."""
        if concurrency < 1:
            raise ConfigurationError("concurrency", concurrency, "use 1 or more")
        performer = self.performer(subscription)
        self._refuse_stopped(performer)
        performer.concurrency = concurrency
        if performer.pump is not None:
            performer.pump.scale(concurrency)

    def performer(self, subscription: str) -> Performer:
        """The subscription's state, and its pump; `ConfigurationError` when there is none such."""
        for performer in self.performers:
            if performer.subscription.name == subscription:
                return performer
        known = ", ".join(each.subscription.name for each in self.performers)
        raise ConfigurationError("subscription", subscription, f"use one of {known}")

    async def run(self) -> None:
        """Run until drained.

        Raises the failures of pumps that cannot go on, once all others have been drained or
        have stopped too. The failure of one does not stop the others. What a handler raised to
        end the program (`SystemExit`, `KeyboardInterrupt`) is raised once all pumps have handed
        back what they had.
        """
        await self._make_all_channels()
        self.channels_made.set()
        background = self._start_background()
        relay = None if self._runtime.outbox is None else self._runtime.poster.relay()
        relaying = [] if relay is None else [asyncio.create_task(relay.run(), name="relay")]
        try:
            with ending_the_program():
                async with asyncio.TaskGroup() as group:
                    self._tasks = [
                        group.create_task(
                            self._supervise(each), name=f"pump {each.subscription.name}"
                        )
                        for each in self.performers
                    ]
            if relay is not None:
                # Last, as handlers that end their work post, too.
                relay.drain()
                self._tasks = relaying
                await asyncio.wait(relaying)
        finally:
            for task in (*background, *relaying):
                task.cancel()
            await asyncio.wait([*background, *relaying])
        failures = [each.failure for each in self.performers if each.failure is not None]
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup("several pumps stopped", failures)

    async def wait_until_empty(self) -> None:
        """Return once every subscribed queue is empty, nothing waits for it in the outbox, and
        nothing is in flight.

        Other processes may fill and empty the queues too, so the broker is asked now and then.
        A broker that is away is waited for; `AccessDenied` is raised. The queue of a paused
        subscription is waited for too, with a warning; that of a drained or stopped one is not.
        """
        await self._idle_detector.wait()

    def _start_background(self) -> list[asyncio.Task[None]]:
        runtime = self._runtime
        sweeper = Sweeper(runtime.spill, runtime.gateway, self._clock, runtime.telemetry)
        tasks = [asyncio.create_task(sweeper.run(), name="sweeper")]
        if runtime.handler_times is not None:
            stats = {each.subscription.name: each.stats for each in self.performers}
            recorder = Recorder(runtime.handler_times, stats, self._clock)
            tasks.append(asyncio.create_task(recorder.run(), name="recorder"))
        return tasks

    async def _make_all_channels(self) -> None:
        """In a task, so that a stop need not wait for a broker that does not answer."""
        making = asyncio.create_task(self._make_channels_in_turn(), name="channels")
        self._tasks = [making]
        try:
            await asyncio.wait([making])
        except asyncio.CancelledError:
            making.cancel()
            await asyncio.wait([making])
            raise
        if not making.cancelled():
            making.result()

    async def _make_channels_in_turn(self) -> None:
        for performer in self.performers:
            await self._make_channels(performer)

    async def _make_channels(self, performer: Performer) -> None:
        """A queue that is missing or wrong is said at once; a broker that is away is waited for."""
        attempt = 0
        while not self._drain_asked.is_set():
            try:
                await self._runtime.make_channels(performer.subscription)
            except (ConnectionFailed, Throttled) as error:
                attempt += 1
                performer.last_error = error
                _log.warning(
                    vocabulary.RECEIVE_FAILED,
                    subscription=performer.subscription.name,
                    error=text_of(error),
                )
                await self._back_off(performer, attempt, until=self._drain_asked.is_set)
            else:
                performer.has_channels = True
                performer.last_error = None
                if performer.subscription.make_channels is not MakeChannels.ASSUME:
                    performer.reached_at_s = self._clock.now_s()
                return

    async def _supervise(self, performer: Performer) -> None:
        try:
            while not self._drain_asked.is_set():
                if performer.asked is DesiredState.DRAIN:
                    self._note(performer, PumpState.DRAINED)
                    await performer.wait_until(lambda: self._is_wanted(performer))
                else:
                    await self._run_until_drained(performer)
        except PumpError as error:
            # A pump that stops by its own decision is not to be restarted.
            performer.failure = performer.last_error = error
        finally:
            self._note(performer, PumpState.STOPPED, performer.failure)

    def _is_wanted(self, performer: Performer) -> bool:
        """Whether a drained one has to do something: start again, or end with the app."""
        return self._drain_asked.is_set() or performer.asked is not DesiredState.DRAIN

    def _is_ending(self, performer: Performer) -> bool:
        return self._drain_asked.is_set() or performer.asked is DesiredState.DRAIN

    async def _run_until_drained(self, performer: Performer) -> None:
        """Run a pump, and another one after each that breaks."""
        failure_count = 0
        performer.failing_since_s = None
        while not self._is_ending(performer):
            started_s = performer.started_at_s = self._clock.now_s()
            try:
                await self._run_pump(performer)
            except PumpError:
                raise
            except Exception as error:  # broad: a supervisor restarts whatever broke
                now_s = self._clock.now_s()
                is_first = failure_count == 0 or now_s - started_s > STEADY_S
                failure_count = 1 if is_first else failure_count + 1
                if is_first:
                    performer.failing_since_s = now_s
                performer.last_error = error
                self._note(performer, PumpState.FAILED, error)
                performer.stats.restarts += 1
                await self._back_off(
                    performer, failure_count, until=lambda: self._is_ending(performer)
                )
            else:
                return

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
        pump.on_draining = partial(self._note_draining, performer)
        if performer.concurrency != performer.subscription.concurrency:
            pump.scale(performer.concurrency)
        if performer.asked is DesiredState.PAUSE:
            pump.pause()
            self._note(performer, PumpState.PAUSED)
        else:
            self._note(performer, PumpState.RUNNING)
        if self._is_ending(performer):
            pump.drain()
        try:
            yield
        finally:
            performer.pump = None

    async def _back_off(
        self, performer: Performer, attempt: int, *, until: Callable[[], bool]
    ) -> None:
        try:
            async with self._clock.timeout(_RESTART.delay_s(attempt, self._clock.chance())):
                await performer.wait_until(until)
        except TimeoutError:
            return

    def _controllable(self, subscription: str) -> Performer:
        performer = self.performer(subscription)
        self._refuse_stopped(performer)
        if self._drain_asked.is_set():
            raise ControlRefused(
                subscription, performer.state, "the whole app drains and ends; start it again"
            )
        return performer

    def _refuse_stopped(self, performer: Performer) -> None:
        if performer.state == PumpState.STOPPED:
            why = "" if performer.failure is None else f" because {text_of(performer.failure)}"
            raise ControlRefused(
                performer.subscription.name,
                performer.state,
                f"it has ended for good{why}; mend that and restart the app",
            )

    def _note_draining(self, performer: Performer) -> None:
        # Who stops now hands back even what was started: that is no drain.
        if not self._is_stopping_now:
            self._note(performer, PumpState.DRAINING)

    def _note(self, performer: Performer, state: PumpState, error: Exception | None = None) -> None:
        if performer.state == state:
            return
        performer.state = state
        name = performer.subscription.name
        detail = "" if error is None else text_of(error, repr)
        if error is not None:
            # As text: a renderer that shows frames' locals would show bodies and credentials.
            trace = trace_of(error)
            _log.error(vocabulary.PUMP_FAILED, subscription=name, error=detail, traceback=trace)
        if self._runtime.emit is not None:
            event = PumpStateEvent(subscription=name, state=state.value, detail=detail)
            self._runtime.emit(event)


# Recorder: writes down now and then how long handlers take, for `pump doctor` to read.

_recorder_log = get_logger("pump.recorder")
_EVERY_S = 60.0
_PATIENCE_S = 5.0
"""How long a slow disk may keep a pump from ending."""


class Recorder:
    """Keeps one app's record up to date. A record that cannot be written harms nothing."""

    def __init__(
        self, file: HandlerTimesFile, stats: Mapping[str, PumpStats], clock: Clock
    ) -> None:
        self._file = file
        self._stats = stats
        self._clock = clock
        self._written: dict[str, tuple[int, int]] = {}
        self._has_complained = False

    async def run(self) -> None:
        """Write every minute until cancelled, and then once more."""
        try:
            while True:
                await self._clock.sleep(_EVERY_S)
                await self.record()
        finally:
            await self.record()

    async def record(self) -> None:
        """Write what has changed since the last time."""
        times = self._changed()
        if not times:
            return
        try:
            async with self._clock.timeout(_PATIENCE_S):
                await self._file.write(times)
        except (StorageFailed, TimeoutError) as error:
            self._complain(error)
        else:
            self._written |= {name: (each.count, each.lost_count) for name, each in times.items()}

    def _changed(self) -> dict[str, HandlerTimes]:
        now_s = self._clock.time_s()
        times = {
            name: stats.run_times.summary(lost_count=stats.leases_lost, now_s=now_s)
            for name, stats in self._stats.items()
        }
        return {
            name: each
            for name, each in times.items()
            if self._written.get(name, (0, 0)) != (each.count, each.lost_count)
        }

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            _recorder_log.warning(
                vocabulary.HANDLER_TIMES_UNRECORDED, path=str(self._file.path), error=repr(error)
            )


# Sweeper: sends what was spilled, once its queue can be reached again.

_sweeper_log = get_logger("pump.spill")
_CLAIM_S = 30.0
_BATCH = 100
_IDLE_S = 15.0
_PACE = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1))


@attrs.frozen
class Swept:
    """What one sweep did."""

    sent: int = 0
    failed: int = 0


class Sweeper:
    """Re-sends spilled messages; each is removed only after its queue has accepted it.

    Dying between the two sends a message twice; the copy's de-duplication id makes that one
    where the provider de-duplicates.
    """

    def __init__(
        self,
        spill: SpillStore,
        gateway: Gateway,
        clock: Clock,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._spill = spill
        self._gateway = gateway
        self._clock = clock
        self._telemetry = telemetry

    async def run(self) -> None:
        """Sweep until cancelled, with patience while a queue cannot be reached."""
        failure_count = 0
        while True:
            try:
                swept = await self.sweep()
            except StorageFailed as error:
                _sweeper_log.error(vocabulary.SPILL_FAILED, error=str(error))
                swept = Swept(failed=1)
            failure_count = failure_count + 1 if swept.failed else 0
            pause_s = _IDLE_S
            if failure_count:
                # What failed stays claimed for that long; asking earlier would find nothing.
                pause_s = _CLAIM_S + _PACE.delay_s(failure_count, self._clock.chance())
            elif swept.sent:
                pause_s = 0.0
            await self._clock.sleep(pause_s)

    async def sweep(self) -> Swept:
        """Send what waits and is not being sent elsewhere; report how that went."""
        spilled = await self._spill.claim(now_s=self._clock.time_s(), lease_s=_CLAIM_S, most=_BATCH)
        by_queue: dict[str, list[SpilledMessage]] = defaultdict(list)
        for each in spilled:
            by_queue[each.destination].append(each)
        sent = 0
        for queue, batch in by_queue.items():
            accepted = await self._send(queue, batch)
            await self._spill.remove([each.id for each in accepted])
            sent += len(accepted)
        if sent:
            _sweeper_log.info(vocabulary.SPILL_FLUSHED, sent=sent, failed=len(spilled) - sent)
        if self._telemetry is not None:
            self._telemetry.spilled(await self._spill.count())
        return Swept(sent, len(spilled) - sent)

    async def _send(self, queue: str, batch: Sequence[SpilledMessage]) -> Sequence[SpilledMessage]:
        try:
            await self._send_all(queue, batch)
        except SendFailed as error:
            self._note_failed(queue, error)
            failed_ids = {id_ for id_, _ in error.failures}
            return [each for each in batch if each.message.id not in failed_ids]
        except (PumpError, TimeoutError, OSError) as error:
            # One queue that cannot be reached, or not even be named here, is not all of them.
            _sweeper_log.warning(vocabulary.ROUTING_FAILED, destination=queue, error=str(error))
            self._note_failed(queue, error)
            return ()
        return batch

    def _note_failed(self, queue: str, error: Exception) -> None:
        if self._telemetry is not None:
            self._telemetry.failed("route", queue, error)

    async def _send_all(self, queue: str, batch: Sequence[SpilledMessage]) -> None:
        producer = self._gateway.producer(queue)
        messages = [each.message for each in batch]
        try:
            async with self._clock.timeout(_CLAIM_S / 2):
                if self._telemetry is None:
                    await producer.send(messages)
                    return
                with self._telemetry.sending(queue, messages, is_copy=True) as traced:
                    await producer.send(traced)
        finally:
            await producer.aclose()
