"""Text: metrics as Prometheus reads them, format 0.0.4.

Counters keep their names: the requirements name them, and this format asks for no `_total`.
Whoever lets OpenTelemetry's own exporter or collector translate them gets that suffix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, groupby
from operator import itemgetter

from .counters import Labels
from .metrics_catalogue import Kind, Metric, described
from .metrics_histogram import BOUNDS_S, Durations

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
    kind: Kind = metric.kind
    yield f"# TYPE {shown} {kind.value}"


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{_FOREIGN.sub("_", name)}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{','.join(pairs)}}}"
