"""Measuring: sends messages to a throw-away queue, has them handled, and says what that took.

| step    | without a rate                          | with one                                    |
|---------|-----------------------------------------|---------------------------------------------|
| send    | all, or as many as the limit allows     | each when it is due, while others are       |
| handle  | from the first to the last              | handled                                     |
| measure | over the handling                       | from the first send to the last settlement  |

A run ends when all are gone, when its time is over, or when it is told to; then the pump drains.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from math import floor
from types import TracebackType
from typing import TYPE_CHECKING

import attrs

from ..app import App
from ..clock import Clock
from ..dispatcher import Dispatcher
from ..errors import ConfigurationError
from ..message import Delivery, Message
from ..observability.telemetry import Counters
from ..outcome import Abandon, Ack, Outcome, Settlement
from ..subscription import Subscription
from .report import Calls, EndReason, Measured, spread_of
from .scratch import CountsRequests, ScratchGateway

if TYPE_CHECKING:
    from ..loop.processing import DeliveryResult

# Meter: listens to the pump as its telemetry, and keeps what a report is made of.
#
# Only what costs little: a clock's reading and a few appends a message. Once stopped it hears
# nothing more, so what a drain does afterwards is no part of a measurement.

_NOTHING: AbstractContextManager[None] = nullcontext()


class Meter:
    """A `Telemetry` for one run on one subscription."""

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.now_s
        self._due_s: dict[str, float] = {}
        self._is_stopped = False
        self.on_settled: Callable[[], None] | None = None
        """Called after each settle call that ended a message of ours."""
        self.latencies_s: list[float] = []
        self.run_times_s: list[float] = []
        self.handled = self.rejected = self.retried = self.lost_count = 0
        self._sends = self._receives = self._empty_receives = self._received = 0
        self._settles = self._settled = self._extends = 0
        self.timeline: list[tuple[float, int]] = []
        """When messages were settled, and how many."""
        self.errors: Counter[str] = Counter()

    # -- what the run says -------------------------------------------------------------------

    def expect(self, due_s: Mapping[str, float]) -> None:
        """These messages, by id, were due to be sent at these moments."""
        self._due_s.update(due_s)

    def give_up(self, ids: Iterable[str]) -> None:
        """These were not sent after all."""
        for each in ids:
            self._due_s.pop(each, None)

    def stop(self) -> None:
        """Hear nothing more."""
        self._is_stopped = True

    @property
    def calls(self) -> Calls:
        """What the pump asked of its gateway so far."""
        return Calls(
            sends=self._sends,
            receives=self._receives,
            empty_receives=self._empty_receives,
            settles=self._settles,
            extends=self._extends,
            received=self._received,
            settled=self._settled,
        )

    @property
    def outstanding(self) -> int:
        """Messages of ours that are in their queue, or in flight."""
        return len(self._due_s)

    @property
    def done(self) -> int:
        """Messages of ours that have left their queue for good."""
        return self.handled + self.rejected

    # -- what the pump says ------------------------------------------------------------------

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        """Nothing to open."""

    async def flush(self) -> None:
        """Nothing to send."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        self._sends += not self._is_stopped
        return nullcontext(messages)

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        if self._is_stopped:
            return
        self._receives += 1
        self._empty_receives += not deliveries
        self._received += len(deliveries)

    def watching(self, subscription: Subscription, in_flight: Callable[[], int]) -> None:
        """Levels are no part of a report."""

    def processing(self, subscription: Subscription, delivery: Delivery) -> Handling:
        return Handling(self, delivery.message.id)

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        if not self._is_stopped:
            self._settles += 1
            self._settled += len(settlements)
        return _NOTHING

    def settled(self, subscription: Subscription, results: Sequence[DeliveryResult]) -> None:
        if self._is_stopped:
            return
        before = self.done
        for result in results:
            if type(result.outcome) is not Abandon:
                self._note(result)
        if self.done > before:
            self.timeline.append((self._now_s(), self.done - before))
            if self.on_settled is not None:
                self.on_settled()

    def extended(self, subscription: Subscription, count: int) -> None:
        self._extends += not self._is_stopped

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        self.lost_count += not self._is_stopped

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        if not self._is_stopped:
            self.errors[f"{operation}: {type(error).__name__}"] += 1

    def spilled(self, count: int) -> None:
        """A run spills into memory, and that is thrown away."""

    # -- one message ---------------------------------------------------------------------------

    def note_handled(self, message_id: str) -> None:
        """Its handlers have come to their end, and all is well."""
        due_s = self._due_s.get(message_id)
        if due_s is not None and not self._is_stopped:
            self.latencies_s.append(self._now_s() - due_s)

    def _note(self, result: DeliveryResult) -> None:
        self.run_times_s.append(result.run_s)
        if result.error is not None:
            # By its type alone: its text may quote a body.
            self.errors[f"handler: {type(result.error).__name__}"] += 1
        if type(result.action) is not Ack:
            self.retried += 1
        elif self._due_s.pop(result.delivery.message.id, None) is not None:
            if type(result.outcome) is Ack:
                self.handled += 1
            else:
                self.rejected += 1


class Handling:
    """One delivery in the hands of its handlers."""

    __slots__ = ("_message_id", "_meter")

    def __init__(self, meter: Meter, message_id: str) -> None:
        self._meter = meter
        self._message_id = message_id

    def __enter__(self) -> Handling:
        return self

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        if type(outcome) is Ack:
            self._meter.note_handled(self._message_id)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Nothing more to say."""


_CHUNK = 500
"""The most messages a call."""
_SENDERS = 8
"""Sends at once when each message has its moment: one that is slow must not hold up the next."""

MakeMessage = Callable[[int], Message]
"""The message of a number, each with an id of its own."""


class Measurement:
    """One run; `run` it once, inside the open app."""

    def __init__(self, app: App, scratch: ScratchGateway, meter: Meter, load: Load) -> None:
        self._app = app
        self._scratch = scratch
        self._meter = meter
        self._load = load
        self._clock = app.clock
        self._over = asyncio.Event()
        self._ended: EndReason | None = None
        self._is_all_sent = False
        self._send_requests: dict[str, int] | None = None
        self.has_begun = False
        """Whether there is something that `stop` would let finish."""
        self.sent = 0
        """Messages so far that the broker has."""

    @property
    def done(self) -> int:
        """Messages so far that have left the queue for good."""
        return self._meter.done

    @property
    def total(self) -> int:
        """Messages that are to be sent."""
        return self._load.total

    def stop(self) -> None:
        """End the run; what runs may finish, and is not measured any more."""
        self._end(EndReason.STOPPED)

    async def run(self, subscription: Subscription, make: MakeMessage) -> Measured:
        """Send and handle; the subscription is one of the scratch gateway's.

        Raises whatever makes sending fail, or the pump stop for good.
        """
        self.has_begun = True
        dispatcher = self._app.dispatcher([subscription])
        await dispatcher.runtime.make_channels(subscription)
        self._meter.on_settled = self._look
        before = self._requests()
        send_s = 0.0
        if self._load.rate is None:
            send_s = await self._send_all(subscription.queue, make)
            self._send_requests = self._requests_since(before)
        started_s, cpu_s = self._clock.now_s(), time.process_time()
        if self._ended is not None:  # Stopped before any handler ran: none is to run.
            return self._measured(started_s, send_s, 0.0, self._requests_since(before))
        async with self._pumping(dispatcher) as pumping:
            if self._load.rate is not None:
                send_s = await self._send_paced(subscription.queue, make)
            await self._wait(pumping)
            cpu_s = time.process_time() - cpu_s
            self._meter.stop()
            return self._measured(started_s, send_s, cpu_s, self._requests_since(before))

    async def _send_all(self, queue: str, make: MakeMessage) -> float:
        started_s = self._clock.now_s()
        for start in range(0, self.total, _CHUNK):
            if self._ended or self._clock.now_s() - started_s > self._load.limit_s:
                break
            numbers = range(start, min(start + _CHUNK, self.total))
            await self._send(queue, {number: self._clock.now_s() for number in numbers}, make)
        self._note_all_sent()
        return self._clock.now_s() - started_s

    async def _send_paced(self, queue: str, make: MakeMessage) -> float:
        started_s, load = self._clock.now_s(), self._load
        gate = asyncio.Semaphore(_SENDERS)
        count = 0
        async with asyncio.TaskGroup() as sending:
            while count < load.total and not self._over.is_set():
                elapsed_s = self._clock.now_s() - started_s
                due = min(load.due_count(elapsed_s), count + _CHUNK)
                moments = {n: started_s + load.due_at_s(n) for n in range(count, due)}
                if moments:
                    await gate.acquire()
                    task = sending.create_task(self._send(queue, moments, make), name="bench send")
                    task.add_done_callback(lambda _: gate.release())
                count = due
                if elapsed_s > load.limit_s:
                    break
                await self._pause(load.pause_s(count, self._clock.now_s() - started_s))
        self._note_all_sent()
        return self._clock.now_s() - started_s

    async def _pause(self, seconds: float) -> None:
        """That long, unless it is over before: the next message may be due in an hour."""
        try:
            async with self._clock.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass

    async def _send(self, queue: str, moments: dict[int, float], make: MakeMessage) -> None:
        messages = [make(number) for number in moments]
        ids = [message.id for message in messages]
        # Before the send: a message may be handled before the sender has its answer.
        self._meter.expect(dict(zip(ids, moments.values(), strict=True)))
        try:
            await self._app.post_all(messages, queue=queue)
        except BaseException:
            self._meter.give_up(ids)
            raise
        self.sent += len(messages)

    @asynccontextmanager
    async def _pumping(self, dispatcher: Dispatcher) -> AsyncIterator[asyncio.Task[None]]:
        pumping = asyncio.create_task(dispatcher.run(), name="bench pump")
        pumping.add_done_callback(lambda _: self._over.set())
        try:
            yield pumping
            dispatcher.drain()
            await pumping
        finally:
            if not pumping.done():
                dispatcher.stop_now()
                await asyncio.wait([pumping])

    async def _wait(self, pumping: asyncio.Task[None]) -> None:
        """Until it is over; a pump that stops for good raises why."""
        timer = self._clock.call_later(self._load.limit_s, lambda: self._end(EndReason.TIME))
        waiting = asyncio.create_task(self._over.wait(), name="bench end")
        try:
            await asyncio.wait([pumping, waiting], return_when=asyncio.FIRST_COMPLETED)
            if pumping.done():
                pumping.result()
                self._end(EndReason.STOPPED)
        finally:
            timer.cancel()
            waiting.cancel()
            await asyncio.wait([waiting])

    def _note_all_sent(self) -> None:
        self._is_all_sent = True
        self._look()

    def _look(self) -> None:
        if self._is_all_sent and not self._meter.outstanding:
            self._end(EndReason.ALL)

    def _end(self, how: EndReason) -> None:
        if self._ended is None:
            self._ended = how
        self._over.set()

    def _requests(self) -> Counter[str] | None:
        inner = self._scratch.inner
        return Counter(inner.request_counts) if isinstance(inner, CountsRequests) else None

    def _requests_since(self, before: Counter[str] | None) -> dict[str, int] | None:
        now = self._requests()
        return None if before is None or now is None else dict(now - before)

    def _measured(
        self, started_s: float, send_s: float, cpu_s: float, requests: dict[str, int] | None
    ) -> Measured:
        meter = self._meter
        ended = self._ended or EndReason.STOPPED
        end_s = self._clock.now_s()
        if ended is EndReason.ALL and meter.timeline:
            end_s = meter.timeline[-1][0]
        return Measured(
            rate=self._load.rate,
            sent=self.sent,
            send_s=send_s,
            handled=meter.handled,
            rejected=meter.rejected,
            retried=meter.retried,
            lost=meter.lost_count,
            wall_s=end_s - started_s,
            cpu_s=cpu_s,
            busy_s=sum(meter.run_times_s),
            latency=spread_of(meter.latencies_s),
            run=spread_of(meter.run_times_s),
            calls=meter.calls,
            requests=requests,
            send_requests=self._send_requests,
            timeline=tuple((moment_s - started_s, count) for moment_s, count in meter.timeline),
            errors=dict(meter.errors),
            ended=ended,
        )


# Pacing: how many messages a run sends, and when each is due. Pure.
#
# | asked for                | sent                       | latency counts from                    |
# |--------------------------|----------------------------|----------------------------------------|
# | no rate                  | all, before any is handled | the send: it includes the queue's      |
# |                          |                            | whole backlog                          |
# | a rate                   | one every 1/rate seconds   | the moment it was due, so a send that  |
# |                          | while others are handled   | comes late is not forgiven             |

_TICK_S = 0.002
"""Messages that are due within so long go out together: timers are no finer on a busy machine."""


@attrs.frozen(kw_only=True)
class Load:
    """What is sent."""

    messages: int
    """The most that are sent."""
    rate: float | None = None
    """Messages a second; None to have all of them wait before the first is handled."""
    limit_s: float = 30.0
    """The most that sending takes, and handling after the last send."""
    groups: int = 0
    """Over how many ordering groups they are spread; 0 for messages without one."""

    def __attrs_post_init__(self) -> None:
        _check(self.messages >= 1, "messages", self.messages, "use 1 or more")
        _check(self.rate is None or self.rate > 0, "rate", self.rate, "use more than 0")
        _check(self.limit_s > 0, "limit_s", self.limit_s, "use more than 0")
        _check(self.groups >= 0, "groups", self.groups, "use 0 or more")

    @property
    def total(self) -> int:
        """How many can be sent within the limit, at the rate."""
        if self.rate is None:
            return self.messages
        return max(1, min(self.messages, floor(self.rate * self.limit_s)))

    def due_at_s(self, number: int) -> float:
        """When, after the start, the message of this number is due; the first is number 0."""
        return 0.0 if self.rate is None else number / self.rate

    def due_count(self, elapsed_s: float) -> int:
        """How many are due by now."""
        if self.rate is None:
            return self.total
        return min(self.total, floor(max(0.0, elapsed_s) * self.rate) + 1)

    def pause_s(self, sent: int, elapsed_s: float) -> float:
        """How long to wait before the next are sent."""
        return max(_TICK_S, self.due_at_s(sent) - elapsed_s)

    def group(self, number: int) -> str | None:
        """The ordering group of the message of this number."""
        return f"bench-{number % self.groups}" if self.groups else None


def _check(condition: bool, field: str, value: object, remedy: str) -> None:
    if not condition:
        raise ConfigurationError(f"Load.{field}", value, remedy)
