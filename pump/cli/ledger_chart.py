"""Charts for a terminal: bars of any height in blocks, or in ASCII where there is nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:#"


def bars(values: Sequence[float], *, height: int, levels: str = BLOCKS) -> list[str]:
    """Lines, from the top, of one column a value; the largest reaches the top.

    Whatever is more than nothing is seen.
    """
    steps = len(levels) - 1
    peak = max(values, default=0)
    fills = [ceil(value / peak * height * steps) if peak else 0 for value in values]
    return [
        "".join(levels[min(max(fill - row * steps, 0), steps)] for fill in fills)
        for row in reversed(range(height))
    ]


def rate(count: float, span_s: float) -> str:
    """How often, in the unit that makes a number of it."""
    per_s = count / span_s
    for factor, unit in ((1, "s"), (60, "min"), (3_600, "h")):
        if per_s * factor >= 1:
            return f"{_short(per_s * factor)}/{unit}"
    return f"{_short(per_s * 86_400)}/d"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.1f}".removesuffix(".0")
