"""Handler times: how long a subscription's handlers took, as far as a running pump has seen."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class HandlerTimes:
    """A summary of one process's deliveries since it started; percentiles err upwards, by 19 %
    at most.
    """

    count: int
    """How many deliveries were handled to their end."""
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float
    lost_count: int = 0
    """How many leases ended before their message was settled. Their handlers were stopped, so
    how long those would have taken is not known."""
    observed_at_s: float
    """Unix time of the summary."""
