"""Table of the watched pumps."""

from __future__ import annotations

from ..contender import Contender
from ..grid import Grid, times
from ..rounds import Results
from ..summary import Figure, compare, row_of
from .catalogue import WATCHED_CONTENDERS
from .costs import added_us, baseline_of, dearer


def watched_grid(results: Results) -> Grid:
    """What each thing that can be switched on costs a message."""
    head = ("Watched", "messages", "CPU µs/msg", "added µs", "× all off", "")
    lines = [
        _line(contender, results)
        for contender in WATCHED_CONTENDERS
        if contender.name in results.readings
    ]
    return Grid("What watching costs: memory gateway, send, handle, settle", head, tuple(lines))


def _line(contender: Contender, results: Results) -> tuple[str, ...]:
    readings = results.readings
    row = row_of(contender.name, readings[contender.name])
    off = baseline_of(contender.name)
    added = compare(readings, contender.name, off, added_us)
    return (
        contender.title,
        f"{row.messages:,}",
        f"{row.cpu_us.median:.1f}",
        _signed(added),
        times(compare(readings, contender.name, off, dearer)),
        contender.note,
    )


def _signed(figure: Figure | None) -> str:
    return "–" if figure is None else f"{figure.median:+.1f}"
