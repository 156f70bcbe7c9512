"""Run times: how long handlers took, in buckets. A delivery costs an addition and an increment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import attrs

from ..handler_times import HandlerTimes
from .ending import Ending

_SHORT_S = 0.001
"""Nobody sets a lease by handlers that are faster than this, so they share a bucket."""
_STEPS = 4
_BOUNDS_S = tuple(_SHORT_S * 2 ** (step / _STEPS) for step in range(27 * _STEPS))
"""The upper end of each bucket, four to every doubling, up to more than a day."""


@attrs.define
class RunTimes:
    """Counts by duration; ever growing, and small whatever it has seen."""

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(_BOUNDS_S) + 1))
    sum_s: float = 0.0
    max_s: float = 0.0

    def observe(self, endings: Iterable[Ending]) -> None:
        """Count those that a handler finished; a run of zero was untried, or told to stop."""
        short_count, sum_s, max_s = 0, 0.0, self.max_s
        for ending in endings:
            run_s = ending.run_s
            sum_s += run_s
            if run_s > max_s:
                max_s = run_s
            if run_s > _SHORT_S:
                self.counts[bisect_left(_BOUNDS_S, run_s)] += 1
            elif run_s:
                short_count += 1
        self.counts[0] += short_count
        self.sum_s += sum_s
        self.max_s = max_s

    def summary(self, *, lost_count: int, now_s: float) -> HandlerTimes:
        """What was seen until now."""
        count = sum(self.counts)
        return HandlerTimes(
            count=count,
            mean_s=self.sum_s / count if count else 0.0,
            p50_s=self._percentile_s(0.50 * count),
            p99_s=self._percentile_s(0.99 * count),
            max_s=self.max_s,
            lost_count=lost_count,
            observed_at_s=now_s,
        )

    def _percentile_s(self, rank: float) -> float:
        """The upper end of the bucket that holds the `rank`-th run."""
        seen_count = 0
        for bound_s, count in zip(_BOUNDS_S, self.counts, strict=False):
            seen_count += count
            if seen_count >= rank:
                return min(bound_s, self.max_s)
        return self.max_s
