"""Table of how the cost of a message grows."""

from __future__ import annotations

from ..contender import Contender
from ..grid import Grid, times
from ..rounds import Results
from ..summary import compare, row_of
from ..watching.costs import dearer
from .catalogue import SERIES


def growth_grid(results: Results) -> Grid:
    """Each series, and what a message costs in it, to what it costs in the smallest."""
    head = ("What grows", "messages", "msg/s", "CPU µs/msg", "× the smallest", "")
    lines = [
        _line(contender, series[0].name, results)
        for series in SERIES.values()
        for contender in series
        if contender.name in results.readings
    ]
    return Grid("Growth: memory gateway, send, handle, settle", head, tuple(lines))


def _line(contender: Contender, smallest: str, results: Results) -> tuple[str, ...]:
    row = row_of(contender.name, results.readings[contender.name])
    return (
        contender.title,
        f"{row.messages:,}",
        f"{row.rate.median:,.0f}",
        f"{row.cpu_us.median:.1f}",
        times(compare(results.readings, contender.name, smallest, dearer)),
        contender.note,
    )
