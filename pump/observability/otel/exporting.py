"""Exporting: OTLP over HTTP, with our histograms among the SDK's metrics.

The SDK reads the standard variables itself: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER, OTEL_METRIC_EXPORT_INTERVAL and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ...clock import Clock
from ...message import new_id
from ..metrics import Metrics
from ..metrics_catalogue import BOUNDS_S, Durations, described
from ..telemetry import Labels
from .tracing import SCOPE

_NANOSECONDS = 1_000_000_000
_UNNAMED = "unknown_service"


@attrs.frozen(kw_only=True)
class OtlpOptions:
    """Where to export to; what is None is for the environment to say, or the SDK's default."""

    endpoint: str | None = attrs.field(default=None, repr=False)
    """The collector's base URL, such as http://127.0.0.1:4318."""
    service_name: str | None = None
    """OTEL_SERVICE_NAME stands above it."""


def span_exporting_provider(options: OtlpOptions) -> TracerProvider:
    """A provider that sends its spans in batches; a thread of its own does."""
    provider = TracerProvider(resource=_resource(options), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=_path(options, "v1/traces"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def metric_exporting_provider(
    options: OtlpOptions, metrics: Metrics, clock: Clock
) -> MeterProvider:
    """A provider that sends its metrics now and then, the durations of `metrics` among them."""
    exporter = OTLPMetricExporter(endpoint=_path(options, "v1/metrics"))
    reader = PeriodicExportingMetricReader(DurationsExporter(exporter, metrics, clock))
    return MeterProvider([reader], resource=_resource(options), shutdown_on_exit=False)


def _path(options: OtlpOptions, path: str) -> str | None:
    return None if options.endpoint is None else f"{options.endpoint.rstrip('/')}/{path}"


@cache
def _instance_id() -> str:
    """Tells the processes of one service apart: their counts would overwrite each other's."""
    return new_id()


def _resource(options: OtlpOptions) -> Resource:
    resource = Resource.create()
    if SERVICE_INSTANCE_ID not in resource.attributes:
        resource = resource.merge(Resource({SERVICE_INSTANCE_ID: _instance_id()}))
    said = str(resource.attributes.get(SERVICE_NAME, _UNNAMED))
    if options.service_name is None or not said.startswith(_UNNAMED):
        return resource
    return resource.merge(Resource({SERVICE_NAME: options.service_name}))


class DurationsExporter(MetricExporter):
    """Has another exporter send what the SDK collected, and our histograms with it.

    The SDK knows no observable histogram, and its own one costs more a message than everything
    else that we measure.
    """

    def __init__(self, exporter: MetricExporter, metrics: Metrics, clock: Clock) -> None:
        # Private, and what the SDK's own reader asks of every exporter.
        preferred = exporter._preferred_temporality
        super().__init__(preferred, exporter._preferred_aggregation)
        self._exporter = exporter
        self._measured = metrics
        self._clock = clock
        self._temporality = (preferred or {}).get(
            HistogramInstrument, AggregationTemporality.CUMULATIVE
        )
        self._began_ns = self._now_ns()
        self._told: dict[tuple[str, Labels], Durations] = {}

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **rest: Any
    ) -> MetricExportResult:
        return self._exporter.export(self.with_durations(metrics_data), timeout_millis, **rest)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **rest: Any) -> None:
        self._exporter.shutdown(timeout_millis, **rest)

    def with_durations(self, collected: MetricsData) -> MetricsData:
        """What was collected, and the durations in the scope that is ours."""
        ours = self._collect()
        return MetricsData(
            [
                ResourceMetrics(
                    each.resource,
                    [
                        ScopeMetrics(
                            scope.scope,
                            [*scope.metrics, *(ours if scope.scope.name == SCOPE else ())],
                            scope.schema_url,
                        )
                        for scope in each.scope_metrics
                    ],
                    each.schema_url,
                )
                for each in collected.resource_metrics
            ]
        )

    def _collect(self) -> Sequence[Metric]:
        now_ns = self._now_ns()
        points: dict[str, list[HistogramDataPoint]] = {}
        for held in self._measured.durations():
            points.setdefault(held.name, []).append(self._point(self._news(held), now_ns))
        if self._temporality is AggregationTemporality.DELTA:
            self._began_ns = now_ns
        return [
            Metric(
                name,
                described(name).description,
                described(name).unit,
                Histogram(found, self._temporality),
            )
            for name, found in points.items()
        ]

    def _news(self, held: Durations) -> Durations:
        """All of it, or what came since the export before, as the collector prefers."""
        if self._temporality is not AggregationTemporality.DELTA:
            return held
        before = self._told.get((held.name, held.labels))
        self._told[held.name, held.labels] = held
        if before is None:
            return held
        counts = tuple(now - then for now, then in zip(held.counts, before.counts, strict=True))
        return attrs.evolve(held, counts=counts, sum_s=held.sum_s - before.sum_s)

    def _point(self, durations: Durations, now_ns: int) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes=dict(durations.labels),
            start_time_unix_nano=self._began_ns,
            time_unix_nano=now_ns,
            count=durations.count,
            sum=durations.sum_s,
            bucket_counts=list(durations.counts),
            explicit_bounds=list(BOUNDS_S),
            # Optional on the wire; we do not keep them.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
        )

    def _now_ns(self) -> int:
        return int(self._clock.time_s() * _NANOSECONDS)
