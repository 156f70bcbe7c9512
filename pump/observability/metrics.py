"""Metrics: counts, durations and levels of one app, kept in its own memory.

`App(telemetry=Metrics(port=9464))` serves them to Prometheus; `OpenTelemetry` exports them too.
Nothing here needs a package beside ours.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, SendFailed
from ..http.server import Answering, Server, ServerThread, url_of
from ..http.wire import Answer, Refused, Request, refuse_changes
from ..message import Delivery, Message
from ..outcome import Abandon, Ack, Outcome, Settlement
from . import vocabulary
from .log import get_logger
from .metrics_catalogue import CONTENT_TYPE, Durations, Histogram, Record, as_text
from .telemetry import Counter, Counters, Labels, failure_name, is_failed, messaging_system

if TYPE_CHECKING:
    from ..loop.processing import DeliveryResult
    from ..subscription import Subscription

_log = get_logger("pump.telemetry")
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9464

Also = Callable[[str, Mapping[str, str]], Record]
"""Makes, for a histogram's name and labels, another recorder of each duration."""


class SenderMeters:
    """What is counted of a queue that is sent to; looked up once a call, then only added to."""

    __slots__ = ("queue", "send", "sent")

    def __init__(self, queue: str, metrics: Metrics, *, counts_messages: bool) -> None:
        self.queue = queue
        self.sent = _series(metrics, vocabulary.MESSAGES_SENT, queue, counts_messages)
        self.send = metrics.histogram("send", queue)


class ReceiverMeters:
    """What is counted of a queue that is received from."""

    __slots__ = (
        "completed",
        "process",
        "queue",
        "receive",
        "received",
        "released",
        "retried",
        "settle",
    )

    def __init__(self, queue: str, metrics: Metrics, *, counts_messages: bool) -> None:
        self.queue = queue
        self.received = _series(metrics, vocabulary.MESSAGES_RECEIVED, queue, counts_messages)
        self.completed = metrics.counters.series(vocabulary.COMPLETED, queue=queue)
        self.retried = metrics.counters.series(vocabulary.RETRIED, queue=queue)
        self.released = metrics.counters.series(vocabulary.RELEASED, queue=queue)
        self.receive = metrics.histogram("receive", queue)
        self.process = metrics.histogram("process", queue)
        self.settle = metrics.histogram("settle", queue)


def _series(metrics: Metrics, name: str, queue: str, is_ours: bool) -> Counter:
    # One that is not exported, where another telemetry counts the same.
    return metrics.counters.series(name, queue=queue) if is_ours else Counter()


class Metrics:
    """A `Telemetry` that measures; it traces nothing.

    `port` has Prometheus' text served at `http://host:port/metrics` while the app is open; 0
    takes any that is free. Without one, `prometheus_text` is there for another server.
    """

    def __init__(self, *, port: int | None = None, host: str = DEFAULT_HOST) -> None:
        self.counters = Counters()
        self.now_s = SYSTEM_CLOCK.now_s
        self.also: Also | None = None
        """Set before the app opens, so that every histogram has it."""
        self._server = None if port is None else MetricsServer(self.prometheus_text, host, port)
        self._system = ""
        self._counts_messages = True
        self._senders: dict[tuple[str, bool], SenderMeters] = {}
        self._receivers: dict[str, ReceiverMeters] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}
        self._in_flight: dict[str, tuple[str, Callable[[], int]]] = {}
        self._spill_count: int | None = None

    @property
    def url(self) -> str | None:
        """Where the metrics are served; None while they are not."""
        return None if self._server is None else self._server.url

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        self.counters, self.now_s = counters, clock.now_s
        self._system = messaging_system(gateway)
        self._counts_messages = counts_messages
        self._senders.clear()
        self._receivers.clear()
        if self._server is not None:
            self._server.start()

    async def flush(self) -> None:
        """Nothing to do: metrics are pulled."""

    async def aclose(self) -> None:
        self._in_flight.clear()
        if self._server is not None:
            await self._server.stop()

    # -- what is told ----------------------------------------------------------------------------

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        return SendObservation(self, self._sender(queue, is_copy), messages, is_copy)

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        meters = self._receiver(subscription.queue)
        meters.received.value += len(deliveries)
        if waited_s is not None:
            meters.receive.record(waited_s)

    def watching(self, subscription: Subscription, in_flight: Callable[[], int]) -> None:
        self._in_flight[subscription.name] = subscription.queue, in_flight

    def processing(self, subscription: Subscription, delivery: Delivery) -> Process:
        return Process(self, self._receiver(subscription.queue))

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        return SettleObservation(self, self._receiver(subscription.queue))

    def settled(self, subscription: Subscription, results: Sequence[DeliveryResult]) -> None:
        meters = self._receiver(subscription.queue)
        completed_count = 0
        for result in results:
            kind = type(result.outcome)
            if kind is Ack:
                completed_count += 1
            elif kind is Abandon:
                meters.released.value += 1
            elif type(result.action) is not Ack:
                meters.retried.value += 1
            # What was rejected, and has gone, its router counts, with the reason.
        meters.completed.value += completed_count

    def extended(self, subscription: Subscription, count: int) -> None:
        self.counters.add(vocabulary.LEASE_EXTENSIONS, count, queue=subscription.queue)

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        self.counters.add(vocabulary.LEASES_LOST, queue=subscription.queue)

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        self.counters.add(
            vocabulary.ERRORS, operation=operation, error_type=failure_name(error), queue=queue
        )

    def spilled(self, count: int) -> None:
        self._spill_count = count

    # -- what is read ----------------------------------------------------------------------------

    def gauges(self) -> dict[tuple[str, Labels], int]:
        """Levels, as they are now."""
        levels: dict[tuple[str, Labels], int] = {}
        for queue, in_flight in list(self._in_flight.values()):
            key = vocabulary.IN_FLIGHT, (("queue", queue),)
            levels[key] = levels.get(key, 0) + in_flight()
        if self._spill_count is not None:
            levels[vocabulary.SPILL_MESSAGES, ()] = self._spill_count
        return levels

    def durations(self) -> list[Durations]:
        """A copy of every histogram."""
        return [
            Durations(name=name, labels=labels, counts=tuple(each.counts), sum_s=each.sum_s)
            for (name, labels), each in list(self._histograms.items())
        ]

    def prometheus_text(self) -> bytes:
        """Every metric in Prometheus' text format; any thread may ask."""
        return as_text(self.counters.snapshot(), self.gauges(), self.durations())

    # -- for the context managers ----------------------------------------------------------------

    def histogram(self, operation: str, queue: str, error_type: str = "") -> Histogram:
        """The durations of an operation on a queue, those apart that failed."""
        is_process = operation == "process"
        name = vocabulary.PROCESS_DURATION if is_process else vocabulary.OPERATION_DURATION
        labels: Labels = (
            *((("error.type", error_type),) if error_type else ()),
            ("messaging.destination.name", queue),
            ("messaging.operation.name", operation),
            ("messaging.system", self._system),
        )
        found = self._histograms.get((name, labels))
        if found is None:
            also = None if self.also is None else self.also(name, dict(labels))
            found = self._histograms[name, labels] = Histogram(also)
        return found

    def _sender(self, queue: str, is_copy: bool) -> SenderMeters:
        found = self._senders.get((queue, is_copy))
        if found is None:
            counts = self._counts_messages and not is_copy
            found = SenderMeters(queue, self, counts_messages=counts)
            self._senders[queue, is_copy] = found
        return found

    def _receiver(self, queue: str) -> ReceiverMeters:
        found = self._receivers.get(queue)
        if found is None:
            found = ReceiverMeters(queue, self, counts_messages=self._counts_messages)
            self._receivers[queue] = found
        return found


# Timing: the context managers around what is measured.
#
# Classes, not generators: one of these is made for every message.


class Process:
    """One delivery in the hands of its handlers."""

    __slots__ = ("_began_s", "_failure", "_meters", "_metrics")

    def __init__(self, metrics: Metrics, meters: ReceiverMeters) -> None:
        self._metrics = metrics
        self._meters = meters
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._began_s = self._metrics.now_s()
        return self

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        if error is not None and is_failed(outcome, error):
            self._failure = error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        took_s = self._metrics.now_s() - self._began_s
        failure = self._failure if error is None else error
        if failure is None:
            self._meters.process.record(took_s)
        else:
            _note_failure(self._metrics, "process", self._meters.queue, failure, took_s)


class SettleObservation:
    """One settle call."""

    __slots__ = ("_began_s", "_meters", "_metrics")

    def __init__(self, metrics: Metrics, meters: ReceiverMeters) -> None:
        self._metrics = metrics
        self._meters = meters

    def __enter__(self) -> None:
        self._began_s = self._metrics.now_s()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        took_s = self._metrics.now_s() - self._began_s
        if error is None:
            self._meters.settle.record(took_s)
        else:
            _note_failure(self._metrics, "settle", self._meters.queue, error, took_s)


class SendObservation:
    """One send. What was refused was not sent; a copy of a rejected message counts as rejected,
    and its router reports its failure.
    """

    __slots__ = ("_began_s", "_is_copy", "_messages", "_meters", "_metrics")

    def __init__(
        self, metrics: Metrics, meters: SenderMeters, messages: Sequence[Message], is_copy: bool
    ) -> None:
        self._metrics = metrics
        self._meters = meters
        self._messages = messages
        self._is_copy = is_copy

    def __enter__(self) -> Sequence[Message]:
        self._began_s = self._metrics.now_s()
        return self._messages

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        took_s = self._metrics.now_s() - self._began_s
        if error is None:
            self._meters.send.record(took_s)
        else:
            self._note_failed(error, took_s)
        self._meters.sent.value += len(self._messages) - _refused_count(self._messages, error)

    def _note_failed(self, error: BaseException, took_s: float) -> None:
        metrics, queue = self._metrics, self._meters.queue
        if self._is_copy:
            metrics.histogram("send", queue, failure_name(error)).record(took_s)
        else:
            _note_failure(metrics, "send", queue, error, took_s)


def _refused_count(messages: Sequence[Message], error: BaseException | None) -> int:
    if error is None:
        return 0
    return len(error.failures) if isinstance(error, SendFailed) else len(messages)


def _note_failure(
    metrics: Metrics, operation: str, queue: str, error: BaseException, took_s: float
) -> None:
    metrics.histogram(operation, queue, failure_name(error)).record(took_s)
    metrics.failed(operation, queue, error)


# Metrics server: metrics at `/metrics` for Prometheus to fetch.


"""Where OpenTelemetry's own Prometheus exporters listen."""


class MetricsServer:
    """Serves a text between `start` and `stop`; may be started again.

    In a thread of its own, so that a blocked event loop can still be seen to be blocked.
    """

    def __init__(self, text: Callable[[], bytes], host: str, port: int) -> None:
        self._text = text
        self._address = host, port
        self._thread: ServerThread | None = None
        self._url: str | None = None

    @property
    def url(self) -> str | None:
        """Where it is served; None while it is not."""
        return self._url

    def start(self) -> None:
        """Listen. `ConfigurationError` when the address cannot be had."""
        made = _bound(*self._address)
        self._url = _url_of(made)
        self._thread = ServerThread(
            _answering(self._text), _note_serving_failure, name="pump-metrics"
        )
        self._thread.start(made)
        _log.info(vocabulary.METRICS_SERVED, address=self._url)

    async def stop(self) -> None:
        """Listen no more. Idempotent."""
        thread, self._thread, self._url = self._thread, None, None
        if thread is not None:
            await thread.aclose()


@asynccontextmanager
async def serving_metrics(
    text: Callable[[], Awaitable[bytes]], host: str, port: int
) -> AsyncIterator[None]:
    """Serve a text that has to be waited for until the block ends, on the loop that runs."""
    made = _bound(host, port)
    url = _url_of(made)
    server = Server(_answering(text), SYSTEM_CLOCK, _note_serving_failure)
    await server.listen_on(made)
    try:
        _log.info(vocabulary.METRICS_SERVED, address=url)
        yield
    finally:
        await server.aclose()


def _answering(text: Callable[[], bytes | Awaitable[bytes]]) -> Answering:
    async def answer(request: Request) -> Answer:
        refuse_changes(request)
        if request.path != ("metrics",):
            raise Refused(HTTPStatus.NOT_FOUND, "there is /metrics")
        found = text()
        body = await found if inspect.isawaitable(found) else found
        return Answer(body=body, content_type=CONTENT_TYPE)

    return answer


def _note_serving_failure(request: Request, error: Exception) -> None:
    error_type = type(error).__name__
    _log.warning(vocabulary.TELEMETRY_FAILED, operation="metrics", error_type=error_type)


def _bound(host: str, port: int) -> socket.socket:
    is_ipv6 = ":" in host
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            "telemetry.prometheus", f"{host}:{port}", f"{error}; choose another port"
        ) from error


def _url_of(made: socket.socket) -> str:
    return f"{url_of(made.getsockname())}/metrics"
