"""Tally: what processes have counted, and the sums of that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..health.crew_report import Counts, added
from ..health.metrics_sum import Families, added as added_metrics, lasting, parse


@attrs.frozen(kw_only=True)
class Tally:
    """What one process, or several together, had counted when they were last heard of."""

    counts: Counts = attrs.field(factory=dict)
    metrics: Families = attrs.field(factory=dict)
    discarded: int = 0
    spilled: int = 0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(
            counts=added(self.counts, other.counts),
            metrics=added_metrics([self.metrics, other.metrics]),
            discarded=self.discarded + other.discarded,
            spilled=self.spilled + other.spilled,
        )

    def lasting(self) -> Tally:
        """What stays once the process has ended."""
        return attrs.evolve(self, metrics=lasting(self.metrics))

    def with_document(self, found: Mapping[str, Any]) -> Tally:
        """Brought up to date by what a process says of all its subscriptions, or of one."""
        told = found.get("subscriptions", [found] if "counts" in found else [])
        counts = {each["name"]: each["counts"] for each in told}
        return attrs.evolve(self, counts={**self.counts, **counts})

    def with_metrics(self, text: bytes) -> Tally:
        """Brought up to date by a process's metrics."""
        return attrs.evolve(self, metrics=parse(text))

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Tally:
        """The last word of a process."""
        return cls(
            counts=said["counts"],
            metrics=parse(said["metrics"].encode()),
            discarded=said["discarded"],
            spilled=said["spilled"],
        )
