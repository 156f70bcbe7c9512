"""Instruments: our counts and levels, read by OpenTelemetry whenever it exports.

Observable ones: counting costs an addition to a number of ours, and the SDK's share is paid once
an export instead of once a message. Only of histograms there is no observable kind. Where the
provider is the program's own, every duration therefore goes through the SDK (`durations_through`);
where we made it, our exporter adds the buckets (`exporting.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from ..counters import Labels
from ..metrics import Also, Metrics
from ..metrics_catalogue import BOUNDS_S, CATALOGUE, MetricKind, Record, described
from .tracing import Trouble


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
