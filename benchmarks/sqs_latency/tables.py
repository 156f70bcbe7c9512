"""Table of pumps far from SQS: what they reach of what is allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from ..contender import Contender
from ..grid import Grid, times
from ..reading import Reading
from ..rounds import Results
from ..summary import compare, row_of
from .bounds import bound_of, share_of_bound
from .catalogue import LATENCY_CONTENDERS, near_of

_MISSING = "–"


def latency_grid(results: Results) -> Grid:
    """Messages a second beside the bound, and what sets it."""
    head = (
        *("Pumphouse SQS", "added ms", "a call, ms", "messages", "msg/s", "CPU µs/msg"),
        *("allowed msg/s", "reached", "limit", ""),
    )
    lines = []
    for contender in LATENCY_CONTENDERS:
        if contender.name in results.missing:
            dashes = [_MISSING] * (len(head) - 2)
            lines.append((contender.title, *dashes, f"needs {contender.needs}"))
        elif contender.name in results.readings:
            lines.append(_line(contender, results))
    title = "SQS at growing distances: what a pump makes of its credits"
    return Grid(title, head, tuple(lines))


def _line(contender: Contender, results: Results) -> tuple[str, ...]:
    readings = results.readings[contender.name]
    row = row_of(contender.name, readings)
    return (
        contender.title,
        f"{contender.options['latency_ms']:g}",
        f"{median(each.figures['call_ms'] for each in readings):.1f}",
        f"{row.messages:,}",
        f"{row.rate.median:,.0f}",
        f"{row.cpu_us.median:,.0f}",
        *_allowed(contender, readings, results),
        contender.note,
    )


def _allowed(
    contender: Contender, readings: Sequence[Reading], results: Results
) -> tuple[str, str, str]:
    near = near_of(contender)
    pairs = list(zip(readings, results.readings.get(near, ()), strict=False))
    if contender.name == near or not pairs:
        return (_MISSING, _MISSING, _MISSING)
    bounds = [bound_of(*pair) for pair in pairs]
    [(limit, _)] = Counter(bound.limit for bound in bounds).most_common(1)
    reached = compare(results.readings, contender.name, near, share_of_bound)
    return (f"{median(bound.rate for bound in bounds):,.0f}", times(reached), limit)
