"""Percentiles by nearest rank: of values, and of durations that were counted in buckets. Pure.

Durations of any length are counted in buckets whose edges grow by two per cent: the middle of a
bucket is within one per cent of what is in it. What is exported has the fixed bounds that its
readers expect (`observability/metrics_catalogue.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, exp, log
from typing import TypeVar

_T = TypeVar("_T")
_EDGE = log(1.02)
_SHORTEST_S = 1e-6


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values, in order, do not exceed.

    ValueError without values, or for a share outside 0 to 1.
    """
    if not ordered:
        raise ValueError("there are no values")
    if not 0 <= share <= 1:
        raise ValueError(f"a share is between 0 and 1: {share}")
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def bucket_at(rank: float, counts: Iterable[tuple[_T, int]]) -> _T | None:
    """The bucket, of buckets in order, that holds the value of this rank; None past the last."""
    seen = 0
    for bucket, count in counts:
        seen += count
        if seen >= rank:
            return bucket
    return None


def bucket_of(duration_s: float) -> int:
    """The bucket of a duration."""
    return ceil(log(max(duration_s, _SHORTEST_S)) / _EDGE)


def bucket_edges() -> tuple[float, float]:
    """The shortest duration that is told apart, and the logarithm by which each edge is later."""
    return _SHORTEST_S, _EDGE


def middle_of(bucket: int) -> float:
    """The duration that stands for a bucket."""
    return exp((bucket - 0.5) * _EDGE)


def end_of(bucket: int) -> float:
    """The longest duration of a bucket."""
    return exp(bucket * _EDGE)
