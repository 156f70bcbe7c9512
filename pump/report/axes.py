"""Axes: the plane that charts are drawn on, with its lines and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from .markup import moment, text

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
