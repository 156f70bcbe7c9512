"""What `pump local` must keep below, as far as it is no ratio. Pure."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .reading import Reading

_MILLION = 1_000_000


@attrs.frozen(kw_only=True)
class Limit:
    """A figure of one contender that shall stay below a target."""

    title: str
    target: float
    unit: str
    contender: str
    measure: Callable[[Reading], float]
    min_messages: int = 1
    """With fewer, the figure says nothing about the limit."""

    def fits(self, reading: Reading) -> bool:
        """Whether the reading is one the limit is about."""
        return reading.messages >= self.min_messages


SERVER_LIMITS = (
    Limit(
        title="pump local, send to receive, p99 at 1,000 msg/s",
        target=10.0,
        unit="ms",
        contender="latency-pump-local",
        measure=lambda reading: reading.figures["receiving_p99_ms"],
    ),
    Limit(
        title="pump local, memory with a million pending",
        target=1.5,
        unit="GiB",
        contender="pending-pump-local",
        measure=lambda reading: max(reading.rss_mib) / 1024,
        min_messages=_MILLION,
    ),
    Limit(
        title="The same, receive p50 to that with 1,000 pending",
        target=1.2,
        unit="×",
        contender="pending-pump-local",
        measure=lambda reading: reading.figures["many_p50_ms"] / reading.figures["few_p50_ms"],
        min_messages=_MILLION,
    ),
    Limit(
        title="The same, start",
        target=10.0,
        unit="s",
        contender="pending-pump-local",
        measure=lambda reading: reading.figures["start_s"],
        min_messages=_MILLION,
    ),
)
