"""Handler: the function that Lambda calls, once an event and for as long as it keeps us.

The app lives on one event loop in a thread of its own, opened by the first event and kept: its
clients and connection pools belong to that loop and serve the next event too. Nothing is left
running on it when an event is answered, so nothing is cut in half when Lambda freezes the
process; what the other side closed meanwhile is noticed when the loop goes on, before the next
call. And the thread that waits stays awake: where a handler blocks the loop, it can still answer
in time for the messages that were done.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from ..blocking import Portal
from ..errors import (
    BatchFailed,
    ConfigurationError,
    GatewayError,
    PumpError,
    UnacceptableLimitReached,
    UnsupportedOperation,
)
from ..loop.batch import Batch
from ..loop.processing import DeliveryResult, Orders, is_unacceptable
from ..loop.pump import UnacceptableCount
from ..loop.reporting import PumpStats
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..outcome import Ack, Defer, Refusal
from ..ports import PushedRecord, PushGateway
from ..runtime import Runtime
from ..subscription import OnRoutingFailure, Subscription
from . import LambdaOptions

if TYPE_CHECKING:
    from ..app import App

# Queue: handles what came from one subscription's queue, event after event.

_log = get_logger("pump.lambda")


def refuse(records: Sequence[PushedRecord], *, error: str, remedy: str) -> None:
    """Say that records of one queue are not handled, and what to do; they come again."""
    _log.error(
        vocabulary.RECORDS_REFUSED,
        queue=records[0].source,
        count=len(records),
        error=error,
        remedy=remedy,
    )


@attrs.frozen(eq=False)
class _OrdersFor:
    """What the worker of a delivery was told, for the same delivery with its body fetched."""

    delivery: Delivery
    orders: Orders

    @property
    def is_dismissed(self) -> bool:
        return self.orders.is_dismissed

    def is_recalled(self, _: Delivery) -> bool:
        return self.orders.is_recalled(self.delivery)

    def is_told_to_stop(self, _: Delivery) -> bool:
        return self.orders.is_told_to_stop(self.delivery)

    async def shed_strays(self) -> None:
        await self.orders.shed_strays()


@attrs.define(eq=False)
class Handled:
    """What became of one queue's records of one event, on its way to the provider and the log."""

    results: list[DeliveryResult] = attrs.field(factory=list)
    lost: list[Delivery] = attrs.field(factory=list)


class PushedQueue:
    """One subscription's port, router and counts, for as long as the app is open."""

    def __init__(
        self,
        runtime: Runtime,
        gateway: PushGateway,
        subscription: Subscription,
        *,
        is_spill_durable: bool,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._telemetry = runtime.telemetry
        self.subscription = subscription
        self._port = gateway.push_port(subscription)
        self._router = runtime.router(_routed(subscription, is_spill_durable=is_spill_durable))
        self._process = runtime.delivery_processor(subscription, self._router)
        self.stats = PumpStats()
        self._reporter = runtime.reporter(subscription, self.stats)
        self._are_channels_made = False
        self._unacceptable = UnacceptableCount(subscription.unacceptable_limit)
        self._closed_until_s = 0.0
        self._in_flight = 0
        if self._telemetry is not None:
            self._telemetry.watching(subscription, lambda: self._in_flight)

    async def handle(
        self,
        records: Sequence[PushedRecord],
        *,
        on_done: Callable[[PushedRecord], None],
        lease_s: float,
        limit_s: float | None,
    ) -> Handled:
        """Have the records handled until `limit_s` are over; `on_done` is told of each whose
        message will not be needed again. What is in no such call is to come again.
        """
        handled = Handled()
        started_s = self._clock.now_s()
        if not await self._is_ready(records, limit_s):
            return handled
        if limit_s is not None:
            limit_s = max(0.0, limit_s - (self._clock.now_s() - started_s))
        by_delivery = {self._port.read(each, lease_s=lease_s): each for each in records}
        self.stats.received += len(by_delivery)
        self._in_flight = len(by_delivery)
        if self._telemetry is not None:
            self._telemetry.received(self.subscription, list(by_delivery), waited_s=None)

        def told(delivery: Delivery, result: DeliveryResult | None) -> None:
            if result is None:
                handled.lost.append(delivery)
                return
            handled.results.append(result)
            if isinstance(result.action, Ack):
                on_done(by_delivery[delivery])
            if is_unacceptable(result) and self._is_too_much():
                batch.give_back_unstarted()

        batch = Batch(
            self._process_fetched,
            told,
            concurrency=self.subscription.concurrency,
            single_lane=self.subscription.ordering_guarantee,
            clock=self._clock,
        )
        await batch.run(list(by_delivery), limit_s=limit_s)
        return handled

    async def settle(self, handled: Handled, *, is_answered: bool, limit_s: float | None) -> None:
        """Tell the provider as much as can be told in `limit_s`, then the observers and the log.

        Never raises for the provider's sake: what it was not told comes again by itself when its
        lease ends.
        """
        unsettled_count = len(handled.results)
        try:
            async with self._clock.timeout(limit_s):
                for results in self._slices(handled.results):
                    await self._tell_provider(results, is_answered=is_answered)
                    unsettled_count -= len(results)
        except TimeoutError:
            self._reporter.flush_expired(unsettled_count)
        self._in_flight = 0
        self._reporter.settled(handled.results)
        for delivery in handled.lost:
            self._reporter.lost(delivery)

    async def aclose(self) -> None:
        """Close the port and the router."""
        try:
            await self._port.aclose()
        finally:
            await self._router.aclose()

    async def _is_ready(self, records: Sequence[PushedRecord], limit_s: float | None) -> bool:
        if self._clock.now_s() < self._closed_until_s:
            remedy = "look at its invalid-message queue; the function tries again by itself"
            refuse(records, error=str(self._limit_reached()), remedy=remedy)
            return False
        if self._are_channels_made:
            return True
        try:
            async with self._clock.timeout(limit_s):
                await self._runtime.make_channels(self.subscription)
        except (PumpError, TimeoutError) as error:
            remedy = "let the function's role do this, or set make_channels=MakeChannels.ASSUME"
            refuse(records, error=repr(error), remedy=remedy)
            return False
        self._are_channels_made = True
        self._reporter.started()
        return True

    async def _process_fetched(self, delivery: Delivery, orders: Orders) -> DeliveryResult | None:
        # Fetched when it starts: a batch of thousands must not be in memory with all its bodies.
        fetched = await self._port.fetch(delivery)
        if isinstance(fetched, Defer):
            return DeliveryResult(delivery, fetched, fetched)
        return await self._process(fetched, _OrdersFor(delivery, orders))

    async def _tell_provider(self, results: Sequence[DeliveryResult], *, is_answered: bool) -> None:
        try:
            refusals = await self._settle(results, is_answered=is_answered)
        except GatewayError as error:
            _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), count=len(results))
            return
        if refusals:
            first = refusals[0].error
            _log.warning(vocabulary.SETTLE_FAILED, error=repr(first), count=len(refusals))

    async def _settle(
        self, results: Sequence[DeliveryResult], *, is_answered: bool
    ) -> Sequence[Refusal]:
        if self._telemetry is None:
            return await self._port.settle(results, is_answered=is_answered)
        with self._telemetry.settling(self.subscription, results):
            return await self._port.settle(results, is_answered=is_answered)

    def _slices(self, results: Sequence[DeliveryResult]) -> list[Sequence[DeliveryResult]]:
        """As many at once as the provider likes, those first that were asked to wait."""
        ordered = sorted(results, key=lambda each: not isinstance(each.action, Defer))
        capabilities = self._runtime.gateway.capabilities
        size = capabilities.settle_batch * capabilities.max_settle_calls
        return [ordered[start : start + size] for start in range(0, len(ordered), size)]

    def _is_too_much(self) -> bool:
        limit = self.subscription.unacceptable_limit
        now_s = self._clock.now_s()
        if limit is None or not self._unacceptable.is_reached(now_s):
            return False
        # A function cannot stop for good: it lets a window pass, and then tries again.
        self._closed_until_s = now_s + limit.window.total_seconds()
        _log.error(
            vocabulary.PUMP_STOPPED,
            subscription=self.subscription.name,
            error=str(self._limit_reached()),
        )
        return True

    def _limit_reached(self) -> UnacceptableLimitReached:
        limit = self.subscription.unacceptable_limit
        assert limit is not None
        return UnacceptableLimitReached(
            self.subscription.name, limit.count, limit.window.total_seconds()
        )


def _routed(subscription: Subscription, *, is_spill_durable: bool) -> Subscription:
    """The subscription as its router sees it: a disk that ends with the function keeps nothing."""
    if is_spill_durable or subscription.on_routing_failure is not OnRoutingFailure.SPILL:
        return subscription
    return attrs.evolve(subscription, on_routing_failure=OnRoutingFailure.KEEP)


_CLOSE_S = 1.0
"""How long a process that was told to end takes to close; Lambda waits two seconds at most."""
_LAST_CALL_SHARE = 0.1
"""The part of the margin before the end at which the answer is given, come what may."""
Response = dict[str, list[dict[str, str]]]
"""The partial-batch response, as Lambda reads it."""


class InvocationContext(Protocol):
    """What we ask of the context that Lambda passes along."""

    def get_remaining_time_in_millis(self) -> int:
        """How long the function may still run."""


class LambdaHandler:
    """Handles SQS events: `lambda_handler = app.lambda_handler()`. Any thread may call it.

    The first call opens the app. An error that is raised, or a process that dies, brings the
    whole event again; see `App.lambda_handler` for what is answered.
    """

    def __init__(self, app: App, options: LambdaOptions) -> None:
        self._app = app
        self._options = options
        # Reentrant: a signal's handler runs on top of whatever its thread was doing.
        self._lock = threading.RLock()
        self._open: _Open | None = None
        self._is_registered = False

    def __call__(self, event: object, context: InvocationContext | None = None) -> Response:
        """Have the event's messages handled, and return those that failed."""
        clock = self._app.clock
        remaining_s = _remaining_s(context)
        ends_at_s = None if remaining_s is None else clock.now_s() + remaining_s
        opened = self._opened()
        answer = opened.consumer.read(event)
        left_s = None if ends_at_s is None else ends_at_s - clock.now_s()
        self._wait_for(opened, answer, ends_at_s, left_s)
        # Asked once: where the loop was left behind, records may still be completed.
        failed_ids = answer.failed_ids
        if failed_ids and not self._options.partial_batches:
            raise BatchFailed(tuple(failed_ids), len(answer.records))
        return {"batchItemFailures": [{"itemIdentifier": each} for each in failed_ids]}

    def close(self) -> None:
        """Close the app, as far as that is possible in a second; a later call opens it again.

        Called by itself when the process ends or gets SIGTERM, which Lambda sends only to
        functions with an extension.
        """
        with self._lock:
            opened, self._open = self._open, None
            if opened is not None:
                opened.close()

    def _wait_for(
        self, opened: _Open, answer: BatchAnswer, ends_at_s: float | None, left_s: float | None
    ) -> None:
        work = opened.consumer.handle(answer, ends_at_s=ends_at_s)
        try:
            opened.portal.call(work, timeout_s=self._patience_s(left_s))
        except TimeoutError:
            _log.error(
                vocabulary.INVOCATION_EXPIRED,
                failed=len(answer.failed_ids),
                remedy="a handler blocks the event loop or resists its cancellation: make a "
                "blocking handler a plain function, and the function's timeout longer",
            )

    def _patience_s(self, left_s: float | None) -> float | None:
        if left_s is None:
            return None
        margin_s = min(self._options.margin.total_seconds(), left_s / 2)
        return max(0.0, left_s - margin_s * _LAST_CALL_SHARE)

    def _opened(self) -> _Open:
        with self._lock:
            if self._open is None:
                self._open = _Open(self._app, self._options, self.close)
                if not self._is_registered:
                    self._is_registered = True
                    _at_exit(self._close_at_exit)
            return self._open

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except RuntimeError as error:
            # No thread can be had any more, and closing takes some. All that was answered is
            # settled; connections end with the process.
            _log.debug(vocabulary.CLOSE_FAILED, error=repr(error))


class _Open:
    """The app on its loop, and what to call when the process ends."""

    def __init__(self, app: App, options: LambdaOptions, close: Callable[[], None]) -> None:
        self._app = app
        self._close = close
        self.portal = Portal()
        self.portal.start()
        try:
            self.consumer = self.portal.call(self._enter(options))
        except BaseException:
            self.portal.stop()
            raise
        self._before = _on_sigterm(self._end)

    async def _enter(self, options: LambdaOptions) -> EventConsumer:
        await self._app.__aenter__()
        try:
            return self._app.event_consumer(options)
        except BaseException:
            await self._app.__aexit__(None, None, None)
            raise

    async def _leave(self) -> None:
        try:
            await self.consumer.aclose()
        finally:
            await self._app.__aexit__(None, None, None)

    def close(self) -> None:
        if _is_main_thread() and signal.getsignal(signal.SIGTERM) == self._end:
            signal.signal(signal.SIGTERM, self._before)
        try:
            self.portal.call(self._leave(), timeout_s=_CLOSE_S)
        except TimeoutError:
            return  # The loop is busy for ever; its thread ends with the process.
        self.portal.stop()

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Close, then do what the signal would have done without us."""
        signal.signal(number, self._before)
        self._close()
        signal.raise_signal(number)


def _at_exit(close: Callable[[], None]) -> None:
    """Have `close` called when the process ends, while threads can still be had: what `atexit`
    calls comes after Python has shut down its thread pools, which SDKs are closed in. The hook that
    `concurrent.futures` itself uses comes before, newest first; it is not public.
    """
    register: Callable[[Callable[[], None]], object]
    register = getattr(threading, "_register_atexit", atexit.register)
    register(close)


def _on_sigterm(end: Callable[[int, FrameType | None], None]) -> Any:
    """Have `end` called, and return what was to be done before."""
    if not _is_main_thread():
        return signal.SIG_DFL  # Python lets no other thread arrange it.
    return signal.signal(signal.SIGTERM, end) or signal.SIG_DFL


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _remaining_s(context: InvocationContext | None) -> float | None:
    """None without a context of Lambda's, as in a test: then nothing is stopped."""
    ask = getattr(context, "get_remaining_time_in_millis", None)
    return None if ask is None else ask() / 1000


# Consumer: handles events on the event loop; the function that Lambda calls waits for it.

_ANSWER_SHARE = 0.25
"""The part of the margin that is left for the answer itself, when settling takes long."""


class EventConsumer:
    """Handles the events of an open app. `read` one, `handle` it, then ask its answer."""

    def __init__(
        self, runtime: Runtime, subscriptions: Sequence[Subscription], options: LambdaOptions
    ) -> None:
        if not subscriptions:
            raise ConfigurationError(
                "App.subscriptions", (), "nothing to handle; use app.subscribe(Subscription(…))"
            )
        self._gateway = _push_gateway(runtime)
        self._runtime = runtime
        self._clock = runtime.clock
        self._subscriptions = tuple(subscriptions)
        self._options = options
        self._margin_s = options.margin.total_seconds()
        self._queues: dict[str, PushedQueue] = {}

    def read(self, event: object) -> BatchAnswer:
        """The event's records, all of them failed so far. Raises as `pushed_records` does."""
        return BatchAnswer(self._gateway.pushed_records(event))

    async def handle(self, answer: BatchAnswer, *, ends_at_s: float | None = None) -> None:
        """Have every record handled, and the provider told what the answer does not say.

        `ends_at_s` is when the function is stopped, on the app's clock. Some time before it, the
        margin, nothing more is started, and handlers that still run are cancelled: their
        messages come again.
        """
        work = [
            (self._queue(subscription), records)
            for subscription, records in self._by_subscription(answer.records)
        ]
        margin_s = self._margin_within(ends_at_s)
        limit_s = self._left_s(ends_at_s, margin_s)
        async with asyncio.TaskGroup() as group:
            handling = [
                group.create_task(
                    queue.handle(
                        records,
                        on_done=answer.complete,
                        lease_s=self._lease_s(queue, ends_at_s),
                        limit_s=limit_s,
                    )
                )
                for queue, records in work
            ]
        is_answered = self._options.partial_batches or not answer.failed_ids
        limit_s = self._left_s(ends_at_s, margin_s * _ANSWER_SHARE)
        async with asyncio.TaskGroup() as group:
            for (queue, _), handled in zip(work, handling, strict=True):
                group.create_task(
                    queue.settle(handled.result(), is_answered=is_answered, limit_s=limit_s)
                )
        if self._runtime.telemetry is not None:
            # Once the event is answered, the process is frozen, maybe for ever.
            await self._runtime.telemetry.flush()

    async def aclose(self) -> None:
        """Close what was needed for the queues that events came from."""
        async with AsyncExitStack() as closing:
            while self._queues:
                _, queue = self._queues.popitem()
                closing.push_async_callback(queue.aclose)

    def _by_subscription(
        self, records: Sequence[PushedRecord]
    ) -> list[tuple[Subscription, list[PushedRecord]]]:
        by_source: dict[str, list[PushedRecord]] = defaultdict(list)
        for record in records:
            if record.defect:
                refuse([record], error=f"{record.id}: {record.defect}", remedy=_MALFORMED)
            else:
                by_source[record.source].append(record)
        found = []
        for source, members in by_source.items():
            subscription = self._subscription_of(members[0])
            if subscription is None:
                known = ", ".join(each.queue for each in self._subscriptions)
                refuse(
                    members,
                    error=f"no subscription of the app consumes it; those there are: {known}",
                    remedy=f"app.subscribe(Subscription(queue={source!r}, …)), or remove the "
                    f"queue's event source mapping from this function",
                )
            else:
                found.append((subscription, members))
        return found

    def _subscription_of(self, record: PushedRecord) -> Subscription | None:
        matching = (
            each for each in self._subscriptions if self._gateway.is_pushed_to(record, each)
        )
        return next(matching, None)

    def _queue(self, subscription: Subscription) -> PushedQueue:
        queue = self._queues.get(subscription.name)
        if queue is None:
            queue = self._queues[subscription.name] = PushedQueue(
                self._runtime,
                self._gateway,
                subscription,
                is_spill_durable=self._options.is_spill_durable,
            )
        return queue

    def _margin_within(self, ends_at_s: float | None) -> float:
        """The margin, or half of the time where there is so little: some must be for the work."""
        left_s = self._left_s(ends_at_s, 0.0)
        return self._margin_s if left_s is None else min(self._margin_s, left_s / 2)

    def _left_s(self, ends_at_s: float | None, kept_s: float) -> float | None:
        if ends_at_s is None:
            return None
        return max(0.0, ends_at_s - kept_s - self._clock.now_s())

    def _lease_s(self, queue: PushedQueue, ends_at_s: float | None) -> float:
        left_s = self._left_s(ends_at_s, 0.0)
        return queue.subscription.lease.total_seconds() if left_s is None else left_s


_MALFORMED = "send events as SQS does; in a test event, give each record all of its members"


def _push_gateway(runtime: Runtime) -> PushGateway:
    gateway = runtime.gateway
    if not isinstance(gateway, PushGateway):
        raise UnsupportedOperation(
            gateway.capabilities.gateway,
            "lambda_handler()",
            "no function is invoked with its messages; use App('sqs://…'), or app.run()",
        )
    return gateway


# Answer: what a function returns for an event. Pure.
#
# Every record counts as failed until its message is done for: whatever goes wrong on the way, and
# whenever the answer is asked for, nothing that was not handled is removed.


class BatchAnswer:
    """The records of one event, and which of them are done for.

    One thread may complete records while another asks for those that failed.
    """

    def __init__(self, records: Sequence[PushedRecord]) -> None:
        self.records = records
        self._done: set[PushedRecord] = set()

    def complete(self, record: PushedRecord) -> None:
        """Its message was handled, or is safe in the queue for rejected messages."""
        self._done.add(record)

    @property
    def failed_ids(self) -> list[str]:
        """The ids to come again, each once and in the event's order."""
        done = self._done
        return list(dict.fromkeys(each.id for each in self.records if each not in done))
