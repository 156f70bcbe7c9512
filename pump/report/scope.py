"""Scope: which outcomes a report is about, and into how many slots of time they are put."""

from __future__ import annotations

import attrs

MAX_BUCKETS = 200
"""So many points at most on a chart, however long the time."""
_LENGTHS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 30, 90, 365)),
)
_DAY_US = 86_400_000_000


@attrs.frozen(kw_only=True)
class Scope:
    """From when (microseconds since 1970) until when, that moment excluded, and of which types."""

    since_us: int = 0
    until_us: int | None = None
    types: tuple[str, ...] = ()


def bucket_length_us(first_us: int, last_us: int) -> int:
    """A round length of time of which no more than `MAX_BUCKETS` lie between the two moments."""
    span_us = max(last_us - first_us, 0)
    for length_s in _LENGTHS_S:
        length_us = length_s * 1_000_000
        # Both ends may lie in the middle of one.
        if span_us // length_us + 2 <= MAX_BUCKETS:
            return length_us
    days = span_us // _DAY_US // (MAX_BUCKETS - 2) + 1
    return days * _DAY_US
