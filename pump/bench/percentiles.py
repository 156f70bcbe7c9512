"""Percentiles of durations, by nearest rank: each is a duration that was really measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

import attrs


@attrs.frozen(kw_only=True)
class Spread:
    """How durations are spread; at least one was measured."""

    count: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values, in order, do not exceed.

    ValueError without values, or for a share outside 0 to 1.
    """
    if not ordered:
        raise ValueError("there are no values")
    if not 0 <= share <= 1:
        raise ValueError(f"a share is between 0 and 1: {share}")
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def spread_of(durations_s: Iterable[float]) -> Spread | None:
    """How these are spread; None when there are none."""
    ordered = sorted(durations_s)
    if not ordered:
        return None
    return Spread(
        count=len(ordered),
        # Rounding must not put a mean outside of what it is the mean of.
        mean_s=min(max(sum(ordered) / len(ordered), ordered[0]), ordered[-1]),
        p50_s=percentile(ordered, 0.5),
        p90_s=percentile(ordered, 0.9),
        p99_s=percentile(ordered, 0.99),
        max_s=ordered[-1],
    )
