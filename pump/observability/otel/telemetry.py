"""OpenTelemetry: the `Telemetry` that an app is given; metrics, traces, or both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from opentelemetry import metrics as metrics_api, trace as trace_api
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import TracerProvider

from ...clock import Clock
from ...errors import ConfigurationError
from ...message import Delivery, Message
from ...outcome import Outcome, Settlement
from ..metrics import DEFAULT_HOST, Also, Metrics
from ..metrics_catalogue import BOUNDS_S, CATALOGUE, MetricKind, Record, described
from ..telemetry import Labels, Processing, Telemetry
from .exporting import OtlpOptions, metric_exporting_provider, span_exporting_provider
from .tracing import SCOPE, Tracing, Trouble, own_version

if TYPE_CHECKING:
    from ...loop.processing import DeliveryResult
    from ...subscription import Subscription
    from ..telemetry import Counters


_FLUSH_S = 1.0
_CLOSE_S = 5.0


class OpenTelemetry:
    """Traces and metrics of one app: `App(telemetry=OpenTelemetry())`.

    Through the providers given, or the program's global ones; `otlp` makes its own. What is given
    is flushed when the app closes, and left open. Whatever a provider does, no message is touched
    by it: trouble is logged, once a minute, as `telemetry.failed`.

    `propagator` writes and reads the headers; by default the program's global one, which is
    W3C's trace context and baggage unless OTEL_PROPAGATORS says otherwise. `exception_texts` puts
    the texts of errors on spans too: only where none quotes what must not be seen.
    `prometheus_port` serves the metrics as text as well, as `Metrics` does.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        traces: bool = True,
        metrics: bool = True,
        propagator: TextMapPropagator | None = None,
        exception_texts: bool = False,
        prometheus_port: int | None = None,
        prometheus_host: str = DEFAULT_HOST,
    ) -> None:
        if not (traces or metrics):
            raise ConfigurationError(
                "OpenTelemetry",
                "traces=False, metrics=False",
                "use App(telemetry=None) for neither",
            )
        self._providers: Providers = GivenProviders(tracer_provider, meter_provider)
        self._trouble = Trouble()
        self._exports_metrics = metrics
        self._metrics = Metrics(port=prometheus_port, host=prometheus_host)
        self._tracing = Tracing(propagator, self._trouble, with_texts=exception_texts)
        self._traces = traces
        self._instruments: Instruments | None = None
        self._is_open = False
        self._told: Telemetry = self._metrics
        if traces:
            measures = metrics or prometheus_port is not None
            self._told = Both(self._metrics, self._tracing) if measures else self._tracing

    @classmethod
    def otlp(
        cls,
        *,
        endpoint: str | None = None,
        service_name: str | None = None,
        traces: bool = True,
        metrics: bool = True,
        is_global: bool = False,
        exception_texts: bool = False,
        prometheus_port: int | None = None,
        prometheus_host: str = DEFAULT_HOST,
    ) -> Self:
        """Export over OTLP/HTTP, by providers of our own that end with the app.

        The standard OTEL_* variables hold: endpoint and headers, service name, sampler,
        intervals. `endpoint` is the collector's base URL and stands above them; `service_name` is
        what the service is called when they do not say. `is_global` makes the providers the
        program's, so that spans of its own code and of instrumented libraries go the same way.
        """
        made = cls(
            traces=traces,
            metrics=metrics,
            exception_texts=exception_texts,
            prometheus_port=prometheus_port,
            prometheus_host=prometheus_host,
        )
        made._providers = OtlpProviders(
            OtlpOptions(endpoint=endpoint, service_name=service_name),
            traces=traces,
            metrics=metrics,
            is_global=is_global,
        )
        return made

    @property
    def metrics(self) -> Metrics:
        """What is measured; `metrics.url` says where it is served, if it is."""
        return self._metrics

    def prometheus_text(self) -> bytes:
        """Every metric in Prometheus' text format; any thread may ask."""
        return self._metrics.prometheus_text()

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        if self._is_open:
            raise ConfigurationError(
                "App.telemetry", "OpenTelemetry", "is used by an open app; make one for each app"
            )
        self._is_open = True
        self._trouble.clock = clock
        try:
            # Exporters read files and resolve names when they are made.
            await asyncio.to_thread(self._prepare, clock)
            await self._told.start(counters, gateway, clock=clock, counts_messages=counts_messages)
        except BaseException:
            await self.aclose()
            raise
        if self._instruments is not None:
            counters.tell_names(self._export)

    def _prepare(self, clock: Clock) -> None:
        try:
            self._providers.open(self._metrics, clock)
        except ValueError as error:
            raise ConfigurationError(
                "telemetry", "OpenTelemetry", f"{error}; correct the OTEL_* variable that says so"
            ) from error
        if self._traces:
            self._tracing.use(self._providers.tracer_provider())
        if self._exports_metrics:
            self._export_metrics()

    def _export_metrics(self) -> None:
        if self._instruments is not None and not self._providers.adds_durations:
            return  # The program's meter knows them already.
        meter = self._providers.meter_provider().get_meter(SCOPE, own_version())
        self._instruments = Instruments(meter, self._metrics)
        if not self._providers.adds_durations:
            self._metrics.also = durations_through(meter, self._trouble)

    def _export(self, name: str) -> None:
        if self._instruments is None:
            return
        try:
            self._instruments.export(name)
        except Exception as error:  # broad: a provider's defect is not the message's
            self._trouble.note("measure", error)

    async def flush(self) -> None:
        await run_within(_FLUSH_S, self._providers.flushing(), self._trouble)

    async def aclose(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            await run_within(_CLOSE_S, self._providers.closing(), self._trouble)
        finally:
            await self._told.aclose()

    # -- what is told, passed on -------------------------------------------------------------------

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        return self._told.sending(queue, messages, is_copy=is_copy)

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        self._told.received(subscription, deliveries, waited_s=waited_s)

    def watching(self, subscription: Subscription, in_flight: Callable[[], int]) -> None:
        self._told.watching(subscription, in_flight)

    def processing(self, subscription: Subscription, delivery: Delivery) -> Processing:
        return self._told.processing(subscription, delivery)

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        return self._told.settling(subscription, settlements)

    def settled(self, subscription: Subscription, results: Sequence[DeliveryResult]) -> None:
        self._told.settled(subscription, results)

    def extended(self, subscription: Subscription, count: int) -> None:
        self._told.extended(subscription, count)

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        self._told.lost(subscription, delivery)

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        self._told.failed(operation, queue, error)

    def spilled(self, count: int) -> None:
        self._told.spilled(count)


# Metrics and traces together: each call goes to both.

_T = TypeVar("_T")


class Both:
    """A `Telemetry` made of two. What is measured includes what tracing takes."""

    def __init__(self, metrics: Metrics, tracing: Tracing) -> None:
        self._metrics = metrics
        self._tracing = tracing

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        for each in (self._tracing, self._metrics):
            await each.start(counters, gateway, clock=clock, counts_messages=counts_messages)

    async def flush(self) -> None:
        """Nothing to do: both keep everything with their provider."""

    async def aclose(self) -> None:
        await self._metrics.aclose()

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        return _Nested(
            self._metrics.sending(queue, messages, is_copy=is_copy),
            self._tracing.sending(queue, messages, is_copy=is_copy),
        )

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        self._metrics.received(subscription, deliveries, waited_s=waited_s)
        self._tracing.received(subscription, deliveries, waited_s=waited_s)

    def watching(self, subscription: Subscription, in_flight: Callable[[], int]) -> None:
        self._metrics.watching(subscription, in_flight)

    def processing(self, subscription: Subscription, delivery: Delivery) -> Processing:
        return _NestedProcessing(
            self._metrics.processing(subscription, delivery),
            self._tracing.processing(subscription, delivery),
        )

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        return _Nested(
            self._metrics.settling(subscription, settlements),
            self._tracing.settling(subscription, settlements),
        )

    def settled(self, subscription: Subscription, results: Sequence[DeliveryResult]) -> None:
        self._metrics.settled(subscription, results)

    def extended(self, subscription: Subscription, count: int) -> None:
        self._metrics.extended(subscription, count)

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        self._metrics.lost(subscription, delivery)

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        self._metrics.failed(operation, queue, error)
        self._tracing.failed(operation, queue, error)

    def spilled(self, count: int) -> None:
        self._metrics.spilled(count)


class _Nested(Generic[_T]):
    """One context manager inside another; gives what the inner one gives. Neither raises."""

    __slots__ = ("_inner", "_outer")

    def __init__(
        self, outer: AbstractContextManager[_T], inner: AbstractContextManager[_T]
    ) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> _T:
        self._outer.__enter__()
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        self._outer.__exit__(kind, error, trace)


class _NestedProcessing:
    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Processing, inner: Processing) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> Self:
        self._outer.__enter__()
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        self._outer.__exit__(kind, error, trace)

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        self._inner.ended(outcome, error)
        self._outer.ended(outcome, error)


# Providers: where spans and metrics go, and how the rest is sent at the end.


class Providers(Protocol):
    """A pair of providers, opened and closed with the app."""

    adds_durations: bool
    """Whether our histograms are exported without the SDK hearing of each duration."""

    def open(self, metrics: Metrics, clock: Clock) -> None:
        """Make what is not there yet."""

    def tracer_provider(self) -> TracerProvider:
        """Where spans go."""

    def meter_provider(self) -> MeterProvider:
        """Where metrics go."""

    def flushing(self) -> Sequence[Callable[[], object]]:
        """What sends everything that waits. Each call may block."""

    def closing(self) -> Sequence[Callable[[], object]]:
        """As `flushing`, and ends what `open` made."""


class GivenProviders:
    """Those of the program: given, or the global ones when that is asked for. Never shut down."""

    adds_durations = False

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        self._tracers = tracers
        self._meters = meters

    def open(self, metrics: Metrics, clock: Clock) -> None:
        """They are there."""

    def tracer_provider(self) -> TracerProvider:
        return self._tracers or trace_api.get_tracer_provider()

    def meter_provider(self) -> MeterProvider:
        return self._meters or metrics_api.get_meter_provider()

    def flushing(self) -> Sequence[Callable[[], object]]:
        return _calls("force_flush", self.tracer_provider(), self.meter_provider())

    def closing(self) -> Sequence[Callable[[], object]]:
        return self.flushing()


class OtlpProviders:
    """Our own, which export over OTLP; made anew each time the app opens."""

    adds_durations = True

    def __init__(
        self, options: OtlpOptions, *, traces: bool, metrics: bool, is_global: bool
    ) -> None:
        self._options = options
        self._traces = traces
        self._with_metrics = metrics
        self._is_global = is_global
        self._tracers: TracerProvider = trace_api.NoOpTracerProvider()
        self._meters: MeterProvider = metrics_api.NoOpMeterProvider()

    def open(self, metrics: Metrics, clock: Clock) -> None:
        if self._traces:
            self._tracers = span_exporting_provider(self._options)
        if self._with_metrics:
            self._meters = metric_exporting_provider(self._options, metrics, clock)
        if self._is_global:
            if self._traces:
                trace_api.set_tracer_provider(self._tracers)
            if self._with_metrics:
                metrics_api.set_meter_provider(self._meters)

    def tracer_provider(self) -> TracerProvider:
        return self._tracers

    def meter_provider(self) -> MeterProvider:
        return self._meters

    def flushing(self) -> Sequence[Callable[[], object]]:
        return _calls("force_flush", self._tracers, self._meters)

    def closing(self) -> Sequence[Callable[[], object]]:
        return _calls("shutdown", self._tracers, self._meters)


def _calls(name: str, *providers: object) -> list[Callable[[], object]]:
    # The API knows neither; the SDK's providers have both, the ones that do nothing none.
    found = (getattr(each, name, None) for each in providers)
    return [each for each in found if each is not None]


async def run_within(
    limit_s: float, calls: Sequence[Callable[[], object]], trouble: Trouble
) -> None:
    """Have each of these run, in a thread of its own, and wait so long at most.

    Daemons, and no pool's: a collector that does not answer must not keep the process from ending.
    """
    if not calls:
        return
    loop = asyncio.get_running_loop()
    ended = [loop.create_future() for _ in calls]

    def run(call: Callable[[], object], done: asyncio.Future[None]) -> None:
        try:
            call()
        except Exception as error:  # broad: an exporter's defect must not keep an app from closing
            trouble.note("export", error)
        finally:
            try:
                loop.call_soon_threadsafe(_resolve, done)
            except RuntimeError:
                return  # The loop has closed; there is no waiter any more.

    for call, done in zip(calls, ended, strict=True):
        threading.Thread(target=run, args=(call, done), name="pump-telemetry", daemon=True).start()
    _, left = await asyncio.wait(ended, timeout=limit_s)
    if left:
        trouble.note("export", TimeoutError(f"not done within {limit_s:g} s"))


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


# Instruments: our counts and levels, read by OpenTelemetry whenever it exports.
#
# Observable ones: counting costs an addition to a number of ours, and the SDK's share is paid once
# an export instead of once a message. Only of histograms there is no observable kind. Where the
# provider is the program's own, every duration therefore goes through the SDK
# (`durations_through`); where we made it, our exporter adds the buckets (`exporting.py`).


class Instruments:
    """Makes an instrument for every name there is, and for those that come later."""

    def __init__(self, meter: Meter, metrics: Metrics) -> None:
        self._meter = meter
        self._metrics = metrics
        self._made: set[str] = set()
        for metric in CATALOGUE.values():
            if metric.kind is MetricKind.GAUGE:
                meter.create_observable_up_down_counter(
                    metric.name,
                    callbacks=[partial(self._levels, metric.name)],
                    unit=metric.unit,
                    description=metric.description,
                )

    def export(self, name: str) -> None:
        """Export the counter of that name."""
        if name in self._made:
            return
        self._made.add(name)
        metric = described(name)
        self._meter.create_observable_counter(
            name,
            callbacks=[partial(self._counts, name)],
            unit=metric.unit,
            description=metric.description,
        )

    def _counts(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        return _observed(name, self._metrics.counters.snapshot())

    def _levels(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        return _observed(name, self._metrics.gauges())


def _observed(name: str, values: Mapping[tuple[str, Labels], int]) -> list[Observation]:
    return [
        Observation(value, dict(labels))
        for (known, labels), value in values.items()
        if known == name
    ]


def durations_through(meter: Meter, trouble: Trouble) -> Also:
    """Have the SDK's histograms hear of each duration too."""
    made: dict[str, Histogram] = {}

    def also(name: str, labels: Mapping[str, str]) -> Record:
        histogram = made.get(name)
        if histogram is None:
            metric = described(name)
            histogram = made[name] = meter.create_histogram(
                name,
                unit=metric.unit,
                description=metric.description,
                explicit_bucket_boundaries_advisory=BOUNDS_S,
            )
        return partial(_record, histogram, dict(labels), trouble)

    return also


def _record(
    histogram: Histogram, labels: Mapping[str, str], trouble: Trouble, duration_s: float
) -> None:
    try:
        histogram.record(duration_s, labels)
    except Exception as error:  # broad: a provider's defect is not the message's
        trouble.note("measure", error)
