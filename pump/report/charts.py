"""Charts as SVG: pure functions from numbers to markup, of a size that does not grow with them.

Colours are classes; the page's style gives them, for light and for dark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

from .axes import (
    LEFT,
    PLOT_HEIGHT,
    PLOT_WIDTH,
    TOP,
    Span,
    grid,
    label_at,
    linear,
    lines,
    svg,
    time_axis,
    y_of,
)
from .markup import compact, count, moment, seconds, share, text

_MIN_COLUMNS = 8
"""So that one column alone is no wall."""
_LEAST_HEIGHT = 0.6


class Series(NamedTuple):
    """Values over time, and the class that colours them."""

    name: str
    style: str
    values: Mapping[int, float]
    """By the start of their slot."""


class Part(NamedTuple):
    """A part of a bar, and the class that colours it."""

    name: str
    style: str
    value: float


def stacked(span: Span, series: Sequence[Series], label: str) -> str:
    """Bars over time, one part a series, the first at the bottom."""
    bars = {
        start: [Part(each.name, each.style, each.values.get(start, 0)) for each in series]
        for start in span.starts()
    }
    top, ticks = linear(max((_height(parts) for parts in bars.values()), default=0))
    gap = min(1.0, span.bucket_width * 0.15)
    drawn = [
        _bar(_slot(start), parts, span.x(start) + gap / 2, span.bucket_width - gap, top)
        for start, parts in bars.items()
        if _height(parts)
    ]
    return svg([grid(ticks, top, compact), time_axis(span), *drawn], label)


def columns(bars: Sequence[tuple[str, Sequence[Part]]], label: str) -> str:
    """Bars side by side, each with its name below."""
    top, ticks = linear(max((_height(parts) for _, parts in bars), default=0))
    width = PLOT_WIDTH / max(len(bars), _MIN_COLUMNS)
    drawn = [grid(ticks, top, compact)]
    for at, (name, parts) in enumerate(bars):
        x = LEFT + at * width
        drawn.append(_bar(name, parts, x + width * 0.15, width * 0.7, top))
        drawn.append(label_at(x + width / 2, name))
    return svg(drawn, label)


def shares(span: Span, series: Series, label: str) -> str:
    """One share over time, as an area."""
    highest = max(series.values.values(), default=0)
    top, ticks = linear(min(highest * 1.15, 1.0) or 0.01)
    parts = [grid(ticks, top, share), time_axis(span)]
    for run in _runs(span, series.values):
        points = [(span.middle(at), y_of(series.values[at] / top)) for at in run]
        parts += [_area(points, series.style), _line(points, series.style)]
    return svg([*parts, *_hovers(span, series.values, share)], label)


def times(span: Span, series: Sequence[Series], label: str) -> str:
    """Durations over time, on a scale of decades."""
    values = [value for each in series for value in each.values.values() if value > 0]
    low = floor(log10(min(values, default=0.001)))
    high = max(ceil(log10(max(values, default=1.0))), low + 1)

    def y(value: float) -> float:
        return y_of((log10(max(value, 10.0**low)) - low) / (high - low))

    factors = (1, 2, 5) if high - low <= 2 else (1,)
    steps = [factor * 10.0**power for power in range(low, high) for factor in factors]
    ticks = [(y(step), _decade(step)) for step in (*steps, 10.0**high)]
    parts = [lines(ticks), time_axis(span)]
    for each in series:
        for run in _runs(span, each.values):
            parts.append(_line([(span.middle(at), y(each.values[at])) for at in run], each.style))
    said = {
        start: ", ".join(f"{each.name} {seconds(each.values[start])}" for each in series)
        for start in (series[0].values if series else ())
    }
    return svg([*parts, *_hovers(span, said, str)], label)


def spread(low: float, points: Sequence[float], high: float) -> str:
    """p50, p90, p99 and max on one line, on a scale of decades that a column of them shares."""
    width, height = 150, 14
    least = max(low, 1e-6)
    decades = max(log10(max(high, least * 10) / least), 1.0)

    def x(value: float) -> float:
        at = log10(max(value, least) / least) / decades
        return 4 + (width - 8) * min(at, 1.0)

    p50, p90, p99, most = map(x, points)
    circles = "".join(
        f'<circle class="{style}" cx="{at:.1f}" cy="7" r="3"/>'
        for style, at in (("p50", p50), ("p90", p90), ("p99", p99))
    )
    return (
        f'<svg class="spread" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'aria-hidden="true"><line class="rail" x1="{p50:.1f}" x2="{most:.1f}" y1="7" y2="7"/>'
        f'<rect class="body" x="{p50:.1f}" y="4" width="{max(p99 - p50, 1):.1f}" height="6" '
        f'rx="3"/>{circles}</svg>'
    )


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Names beside their colours."""
    listed = "".join(f'<li><i class="{style}"></i>{text(name)}</li>' for name, style in entries)
    return f'<ul class="legend">{listed}</ul>'


def _height(parts: Sequence[Part]) -> float:
    return sum(part.value for part in parts)


def _bar(name: str, parts: Sequence[Part], x: float, width: float, top: float) -> str:
    drawn, below = [], 0.0
    for part in parts:
        height = PLOT_HEIGHT * part.value / top
        if part.value:
            # A few failures among millions must be seen all the same.
            seen = max(height, _LEAST_HEIGHT)
            drawn.append(
                f'<rect class="{part.style}" x="{x:.1f}" y="{y_of(0) - below - seen:.1f}" '
                f'width="{max(width, 0.5):.1f}" height="{seen:.1f}"/>'
            )
        below += height
    said = ", ".join(f"{part.name} {count(part.value)}" for part in parts if part.value)
    return f"<g><title>{text(name)}: {text(said)}</title>{''.join(drawn)}</g>"


def _decade(step_s: float) -> str:
    # 100 s is round, and 1.67 min is not.
    return seconds(step_s) if step_s < 60 else f"{step_s:,.0f} s"


def _slot(start_us: int) -> str:
    return f"{moment(start_us)} UTC"


def _runs(span: Span, values: Mapping[int, object]) -> list[list[int]]:
    """Slots with values that follow each other: a gap is no line."""
    runs: list[list[int]] = []
    for start in span.starts():
        if start not in values:
            continue
        if runs and runs[-1][-1] == start - span.bucket_us:
            runs[-1].append(start)
        else:
            runs.append([start])
    return runs


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _area(points: Sequence[tuple[float, float]], style: str) -> str:
    base = TOP + PLOT_HEIGHT
    under = [(points[0][0], base), *points, (points[-1][0], base)]
    return f'<polygon class="area {style}" points="{_points(under)}"/>'


def _line(points: Sequence[tuple[float, float]], style: str) -> str:
    if len(points) == 1:
        [(x, y)] = points
        return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
    return f'<polyline class="line {style}" points="{_points(points)}"/>'


def _hovers(span: Span, values: Mapping[int, Any], said: Callable[[Any], str]) -> list[str]:
    """Over each slot a plane that is not seen, with a title."""
    return [
        f'<rect class="hover" x="{span.x(start):.1f}" y="{TOP}" width="{span.bucket_width:.1f}" '
        f'height="{PLOT_HEIGHT}"><title>{_slot(start)}: {text(said(value))}</title></rect>'
        for start, value in values.items()
    ]
