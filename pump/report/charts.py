"""Charts as SVG: pure functions from numbers to markup, of a size that does not grow with them.

Colours are classes; the page's style gives them, for light and for dark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from math import ceil, floor, log10
from typing import Any, NamedTuple

from ..observability.redaction import scrub
from .tables import ValueKind

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


# Axes: the plane that charts are drawn on, with its lines and labels.

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 30
PLOT_WIDTH = WIDTH - LEFT - RIGHT
PLOT_HEIGHT = HEIGHT - TOP - BOTTOM
LABEL_Y = HEIGHT - 10
_MAX_LABELS = 8
_MINUTE_US, _DAY_US = 60_000_000, 86_400_000_000
_STEPS_S = (
    *(1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 30, 60, 90, 180, 365, 730, 1_825, 3_650)),
)


class Span(NamedTuple):
    """The time axis: slots of one length, from the first with a row to the last."""

    first_us: int
    bucket_us: int
    bucket_count: int

    @property
    def length_us(self) -> int:
        """All of it."""
        return self.bucket_us * self.bucket_count

    @property
    def bucket_width(self) -> float:
        """How broad a slot is."""
        return PLOT_WIDTH / self.bucket_count

    def starts(self) -> range:
        """When each slot began."""
        return range(self.first_us, self.first_us + self.length_us, self.bucket_us)

    def x(self, time_us: float) -> float:
        """Where a moment is."""
        return LEFT + PLOT_WIDTH * (time_us - self.first_us) / self.length_us

    def middle(self, start_us: int) -> float:
        """Where the middle of a slot is."""
        return self.x(start_us + self.bucket_us / 2)


def y_of(part: float) -> float:
    """Where a part of the plot's height is: 0 at the bottom, 1 at the top."""
    return TOP + PLOT_HEIGHT * (1 - part)


def svg(parts: Sequence[str], label: str) -> str:
    """The whole picture; `label` is for those who do not see it."""
    return (
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{text(label)}">{"".join(parts)}</svg></div>'
    )


def linear(most: float) -> tuple[float, list[float]]:
    """The top of an axis from 0 on, and round values along it."""
    if most <= 0:
        return 1.0, [0.0, 1.0]
    step = 10.0 ** floor(log10(most / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if most / (step * factor) <= 5)
    steps = ceil(most / step - 1e-9)
    return step * steps, [step * number for number in range(steps + 1)]


def grid(ticks: Sequence[float], top: float, label: Callable[[float], str]) -> str:
    """Lines across at these values of a linear axis."""
    return lines([(y_of(tick / top), label(tick)) for tick in ticks])


def lines(ticks: Sequence[tuple[float, str]]) -> str:
    """Lines across at these heights, with their labels."""
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text(name)}</text>'
        for y, name in ticks
    )


def time_axis(span: Span) -> str:
    """Round moments along the bottom."""
    steps_us = [each * 1_000_000 for each in _STEPS_S]
    fitting = [each for each in steps_us if span.length_us / each <= _MAX_LABELS]
    step_us = fitting[0] if fitting else span.length_us // _MAX_LABELS + 1
    first_us = -(-span.first_us // step_us) * step_us
    pattern = _pattern(span, step_us)
    base = TOP + PLOT_HEIGHT
    return "".join(
        f'<line class="tick" x1="{span.x(at):.1f}" x2="{span.x(at):.1f}" y1="{base}" '
        f'y2="{base + 5}"/>{label_at(span.x(at), moment(at, pattern))}'
        for at in range(first_us, span.first_us + span.length_us + 1, step_us)
    )


def label_at(x: float, name: str) -> str:
    """A label below the plot; at the edges it is kept inside."""
    anchor = "start" if x < LEFT + 15 else "end" if x > WIDTH - RIGHT - 25 else "middle"
    return (
        f'<text class="axis" x="{x:.1f}" y="{LABEL_Y}" text-anchor="{anchor}">{text(name)}</text>'
    )


def _pattern(span: Span, step_us: int) -> str:
    if step_us >= _DAY_US:
        return "%d %b" if span.length_us < 300 * _DAY_US else "%Y-%m-%d"
    if span.length_us > _DAY_US:
        return "%d %b %H:%M"
    return "%H:%M" if step_us >= _MINUTE_US else "%H:%M:%S"


# Formats: values in readable units, and texts that can be printed.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FURTHEST = timedelta(days=2_900_000)
_PLURAL = {True: "", False: "s"}
_MAX_TEXT = 300


def legible(value: object) -> str:
    """A value as text that can be printed, and shows no credentials. To be escaped."""
    said = scrub(str(value))
    return said if said.isprintable() else "".join(map(_printable, said))


def _printable(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def text(value: object) -> str:
    """A value as text in markup."""
    return escape(legible(value))


def count(value: float) -> str:
    """12,345."""
    return f"{round(value):,}"


def compact(value: float) -> str:
    """12.3k, for axes and tiles."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def share(value: float) -> str:
    """6.2 %; what is not nothing never reads as nothing, and what is not all never as all."""
    percent = value * 100
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    digits = 2 if percent < 1 or 99 < percent < 100 else 1
    return f"{percent:.{digits}f} %".replace(".0 %", " %").replace(".00 %", " %")


def rate(value: float) -> str:
    """16.5/s, 3/min or 2/h, whichever says more."""
    if value >= 1 or value == 0:
        return f"{compact(value)}/s"
    return f"{value * 60:.3g}/min" if value * 60 >= 1 else f"{value * 3600:.3g}/h"


def seconds(value: float) -> str:
    """35 µs, 120 ms, 1.57 s, 2.5 min, 3.1 h or 12 d."""
    size = abs(value)
    for limit, unit in ((1e-3, "µs"), (1.0, "ms")):
        if size < limit:
            return f"{value / limit * 1e3:.3g} {unit}" if value else "0 s"
    for limit, length, unit in ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h")):
        if size < limit:
            return f"{value / length:.3g} {unit}"
    return f"{value / 86_400:,.0f} d"


def moment(time_us: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment in UTC; one that no calendar has is told by its number."""
    since = timedelta(microseconds=time_us)
    if not timedelta(0) <= since < _FURTHEST:
        return f"{time_us} µs"
    return (_EPOCH + since).strftime(pattern)


_FORMATS: dict[ValueKind, Callable[[Any], str]] = {
    ValueKind.COUNT: count,
    ValueKind.SHARE: share,
    ValueKind.RATE: rate,
    ValueKind.SECONDS: seconds,
    ValueKind.TIME: lambda time_us: moment(time_us, "%Y-%m-%d %H:%M"),
}


def shown(value: Any, kind: ValueKind) -> str:
    """A value as a cell says it; nothing when there is none."""
    if value is None or value == "":
        return ""
    if kind is ValueKind.TEXT:
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}…"
    return _FORMATS[kind](value)


def plural(number: int, noun: str) -> str:
    """1 file, 2 files."""
    return f"{number:,} {noun}{_PLURAL[number == 1]}"
