"""Percentiles by nearest rank: of values, and of counts by bucket. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import TypeVar

_T = TypeVar("_T")


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
