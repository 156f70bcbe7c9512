"""Catalogue: every metric we export, its unit and what it tells."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import accumulate, groupby
from operator import itemgetter

import attrs

from . import vocabulary
from .telemetry import Labels


class MetricKind(StrEnum):
    """How a metric behaves; the values are Prometheus' names for it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@attrs.frozen
class Metric:
    """One metric; the unit is UCUM's, as OpenTelemetry wants it."""

    name: str
    kind: MetricKind
    unit: str
    description: str


def _messages(name: str, description: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, "{message}", description)


_ALL = (
    _messages(vocabulary.MESSAGES_SENT, "Messages that were sent."),
    _messages(vocabulary.MESSAGES_RECEIVED, "Deliveries of messages, again or for the first time."),
    _messages(vocabulary.COMPLETED, "Deliveries that were handled, and acked."),
    _messages(vocabulary.RETRIED, "Deliveries that failed or were put off, and come again."),
    _messages(vocabulary.REJECTED, "Messages that were routed away, by reason."),
    _messages(vocabulary.DISCARDED, "Rejected messages for which there was no queue, by reason."),
    _messages(vocabulary.SPILLED, "Rejected messages whose queue could not be reached."),
    _messages(vocabulary.PLAINTEXT_REFUSED, "Unencrypted messages that were not accepted."),
    _messages(vocabulary.PLAINTEXT_ALERTS, "Unencrypted messages accepted with an alert."),
    _messages(vocabulary.RELEASED, "Deliveries that were handed back untried."),
    Metric(
        vocabulary.ROUTING_FAILURES,
        MetricKind.COUNTER,
        "{failure}",
        "Rejected messages that could not be routed at once.",
    ),
    Metric(
        vocabulary.LEASE_EXTENSIONS, MetricKind.COUNTER, "{lease}", "Leases that were extended."
    ),
    Metric(vocabulary.LEASES_LOST, MetricKind.COUNTER, "{lease}", "Leases that were lost."),
    Metric(
        vocabulary.ERRORS,
        MetricKind.COUNTER,
        "{error}",
        "Failed calls and handlers, by operation and type.",
    ),
    Metric(
        vocabulary.IN_FLIGHT,
        MetricKind.GAUGE,
        "{message}",
        "Messages that pumps have received and not yet settled.",
    ),
    Metric(
        vocabulary.SPILL_MESSAGES,
        MetricKind.GAUGE,
        "{message}",
        "Messages that wait in the spill store.",
    ),
    Metric(
        vocabulary.PROCESS_DURATION,
        MetricKind.HISTOGRAM,
        "s",
        "How long decoding and handling took.",
    ),
    Metric(
        vocabulary.OPERATION_DURATION,
        MetricKind.HISTOGRAM,
        "s",
        "How long calls to the broker took, waiting for messages included.",
    ),
)
CATALOGUE = {metric.name: metric for metric in _ALL}


def described(name: str) -> Metric:
    """The metric of that name; one that only the application knows is a counter of it."""
    return CATALOGUE.get(name) or Metric(name, MetricKind.COUNTER, "1", "")


# Histogram: durations by bucket, at the price of a few additions.
#
# OpenTelemetry's own costs more than all else that we measure together: every record hashes its
# attributes, takes a lock and asks for exemplars, 14 µs where this takes 0.5.

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Those that the semantic conventions recommend. A value on a bound belongs below it."""
Record = Callable[[float], object]


class Histogram:
    """Counts by bucket, and the sum; changed on the event loop's thread, read from any."""

    __slots__ = ("_also", "counts", "sum_s")

    def __init__(self, also: Record | None = None) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._also = also

    def record(self, duration_s: float) -> None:
        """Count one that took so long."""
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s
        if self._also is not None:
            self._also(duration_s)


@attrs.frozen(kw_only=True)
class Durations:
    """What one histogram held at a moment."""

    name: str
    labels: Labels
    counts: tuple[int, ...]
    """One a bucket, the last one for what exceeds every bound."""
    sum_s: float

    @property
    def count(self) -> int:
        """Of how many; by the buckets, so that the two always agree."""
        return sum(self.counts)


# Text: metrics as Prometheus reads them, format 0.0.4.
#
# Counters keep their names: the requirements name them, and this format asks for no `_total`.
# OpenTelemetry's own exporter or collector adds that suffix where it translates them.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_UPPER_BOUNDS = (*(f"{bound:g}" for bound in BOUNDS_S), "+Inf")
Levels = Mapping[tuple[str, Labels], int]


def as_text(counters: Levels, gauges: Levels, durations: Iterable[Durations]) -> bytes:
    """All of it, each metric's series together and in a stable order."""
    lines = [*_numbers({**counters, **gauges}), *_histograms(durations)]
    return "".join(f"{line}\n" for line in lines).encode()


def _numbers(levels: Levels) -> Iterator[str]:
    by_name = groupby(sorted(levels.items()), key=lambda item: item[0][0])
    for name, series in by_name:
        metric = described(name)
        shown = _FOREIGN.sub("_", name)
        yield from _heading(shown, metric)
        for (_, labels), value in series:
            yield f"{shown}{_braced(labels)} {value}"


def _histograms(durations: Iterable[Durations]) -> Iterator[str]:
    ordered = sorted(((each.name, each.labels, each) for each in durations), key=itemgetter(0, 1))
    for name, series in groupby(ordered, key=itemgetter(0)):
        shown = f"{_FOREIGN.sub('_', name)}_seconds"
        yield from _heading(shown, described(name))
        for _, labels, each in series:
            for bound, count in zip(_UPPER_BOUNDS, accumulate(each.counts), strict=True):
                yield f"{shown}_bucket{_braced((*labels, ('le', bound)))} {count}"
            yield f"{shown}_sum{_braced(labels)} {each.sum_s!r}"
            yield f"{shown}_count{_braced(labels)} {each.count}"


def _heading(shown: str, metric: Metric) -> Iterator[str]:
    if metric.description:
        yield f"# HELP {shown} {metric.description}"
    kind: MetricKind = metric.kind
    yield f"# TYPE {shown} {kind.value}"


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{_FOREIGN.sub("_", name)}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{','.join(pairs)}}}"
