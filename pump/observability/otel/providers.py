"""Providers: where spans and metrics go, and who sends what is left at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from opentelemetry import metrics as metrics_api, trace as trace_api
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from ...clock import Clock
from ..metrics import Metrics
from .exporting import OtlpOptions, metric_exporting_provider, span_exporting_provider
from .trouble import Trouble


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
                return  # The loop has closed; nobody waits any more.

    for call, done in zip(calls, ended, strict=True):
        threading.Thread(target=run, args=(call, done), name="pump-telemetry", daemon=True).start()
    _, left = await asyncio.wait(ended, timeout=limit_s)
    if left:
        trouble.note("export", TimeoutError(f"not done within {limit_s:g} s"))


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
