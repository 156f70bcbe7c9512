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

from ..blocking import Portal
from ..errors import BatchFailed, ConfigurationError, UnsupportedOperation
from ..observability import vocabulary
from ..observability.log import get_logger
from ..ports import PushedRecord, PushGateway
from ..runtime import Runtime
from ..subscription import Subscription
from .options import LambdaOptions
from .queue import PushedQueue, refuse

if TYPE_CHECKING:
    from ..app import App


_log = get_logger("pump.lambda")
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
