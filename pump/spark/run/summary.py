"""Summary: what tasks, slices and the whole run did, in numbers that can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Self

import attrs

from ...loop import PumpStats
from ...observability import vocabulary
from ...observability.telemetry import Counters


@attrs.frozen(kw_only=True)
class Counts:
    """What became of the messages of one subscription; the fields of `PumpStats`, added up."""

    received: int = 0
    processed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    invalid: int = 0
    released: int = 0
    leases_lost: int = 0
    restarts: int = 0

    @classmethod
    def of(cls, stats: PumpStats) -> Self:
        """The counts of one pump."""
        return cls(**{field.name: getattr(stats, field.name) for field in attrs.fields(cls)})

    @property
    def settled(self) -> int:
        """Deliveries that were tried and whose end the broker confirmed."""
        return self.processed + self.retried + self.dead_lettered + self.invalid

    def __add__(self, other: Counts) -> Counts:
        fields = [field.name for field in attrs.fields(Counts)]
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in fields})


LOSSES = (vocabulary.DISCARDED, vocabulary.SPILLED)
"""What an app counts that its summary warns of."""


def losses(counters: Counters) -> Counter[str]:
    """How often an app discarded or spilled a message so far."""
    return Counter({name: counters.value(name) for name in LOSSES})


class TaskEnd(StrEnum):
    """Why a task ended."""

    EMPTY = "empty"
    """Nothing was left to receive."""
    MESSAGES = "messages"
    """It had the messages that a slice may have."""
    TIME = "time"
    """Its time was over."""
    STOPPED = "stopped"
    """A stop was asked for."""
    FAILED = "failed"
    """It could not begin, or every pump of it stopped by itself."""


class Ended(StrEnum):
    """Why a run ended."""

    EMPTY = "empty"
    TIME = "time"
    STOPPED = "stopped"
    FORCED = "forced"
    """A second signal: tasks were killed, and what they held comes again."""
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class TaskSummary:
    """The one row that a task returns."""

    partition: int
    end: TaskEnd
    counts: Mapping[str, Counts] = attrs.field(factory=dict)
    """By subscription."""
    run_s: float = 0.0
    failures: Mapping[str, Exception] = attrs.field(factory=dict)
    """What stopped a pump for good, by subscription; "" is the whole task."""
    losses: Counter[str] = attrs.field(factory=Counter)
    """How often a message was discarded, or spilled."""


@attrs.frozen(kw_only=True)
class SliceSummary:
    """What one Spark job did."""

    number: int
    tasks: tuple[TaskSummary, ...]
    run_s: float

    @property
    def counts(self) -> dict[str, Counts]:
        """By subscription."""
        return added(task.counts for task in self.tasks)

    @property
    def settled(self) -> int:
        """Messages that were settled in it."""
        return sum(each.settled for each in self.counts.values())

    @property
    def failures(self) -> dict[str, Exception]:
        """The first failure of each subscription; "" is one of a whole task."""
        return {
            name: error for task in reversed(self.tasks) for name, error in task.failures.items()
        }


@attrs.frozen(kw_only=True)
class SparkRun:
    """What a run on Spark did."""

    ended: Ended
    slices: tuple[SliceSummary, ...] = ()
    run_s: float = 0.0
    counts: Mapping[str, Counts] = attrs.field(factory=dict)
    """By subscription, over all slices."""
    failure: Exception | None = None
    """What made it end, or a pump stop for good; several are a group."""

    @property
    def settled(self) -> int:
        """Messages that were settled."""
        return sum(each.settled for each in self.counts.values())


def added(many: Iterable[Mapping[str, Counts]]) -> dict[str, Counts]:
    """Counts by subscription, added up."""
    total: dict[str, Counts] = {}
    for counts in many:
        for name, count in counts.items():
            total[name] = total.get(name, Counts()) + count
    return total
