"""Summary: medians, ratios within a round, and how they stand to what we aim for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import attrs

from .reading import Reading

Readings = Mapping[str, Sequence[Reading]]

_RATIOS = (
    ("Pumphouse memory to taskiq", 1.5, "pump", "taskiq"),
    ("The same, post by post", 1.5, "pump-single", "taskiq"),
    ("Pumphouse memory to dramatiq", 3.0, "pump", "dramatiq"),
    ("Pumphouse local to Huey", 10.0, "pump-local", "huey"),
    ("Pumphouse local to raw sqlite3", 0.25, "pump-local", "sqlite"),
)


@attrs.frozen(kw_only=True)
class Figure:
    """A number with its spread over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of one or more values."""
        return cls(median=median(values), low=min(values), high=max(values))


@attrs.frozen(kw_only=True)
class Row:
    """One contender's line."""

    name: str
    messages: int
    rate: Figure
    cpu_us: Figure


@attrs.frozen(kw_only=True)
class Aim:
    """Something issue 2 asks for, and what was measured."""

    title: str
    target: float
    is_upper: bool
    unit: str
    measured: Figure
    by_cpu: Figure | None = None
    """The same ratio by processor time: what it would be on a machine with nothing else to do."""

    @property
    def is_met(self) -> bool:
        """Whether the median is on the right side."""
        if self.is_upper:
            return self.measured.median <= self.target
        return self.measured.median >= self.target


def row_of(name: str, readings: Sequence[Reading]) -> Row:
    """The medians of a contender."""
    return Row(
        name=name,
        messages=readings[0].messages,
        rate=Figure.of([reading.rate for reading in readings]),
        cpu_us=Figure.of([reading.cpu_us for reading in readings]),
    )


def compare(
    readings: Readings, ours: str, theirs: str, by: Callable[[Reading, Reading], float]
) -> Figure | None:
    """Compare two contenders round by round; None when one of them was not measured."""
    pairs = list(zip(readings.get(ours, ()), readings.get(theirs, ()), strict=False))
    return Figure.of([by(mine, other) for mine, other in pairs]) if pairs else None


def faster(mine: Reading, other: Reading) -> float:
    """How many times the messages a second."""
    return mine.rate / other.rate


def cheaper(mine: Reading, other: Reading) -> float:
    """How many times less processor time a message."""
    return other.cpu_us / mine.cpu_us


def pump_overhead_us(pump: Reading, port: Reading) -> float:
    """Processor time a message that the pump adds to receiving and settling."""
    return pump.span_cpu_us("pump") - port.span_cpu_us("pump")


def growth_mib(readings: Sequence[Reading]) -> Figure | None:
    """By how much resident memory grew from the first sample on."""
    grown = [max(each.rss_mib) - each.rss_mib[0] for each in readings if each.rss_mib]
    return Figure.of(grown) if grown else None


def aims(readings: Readings) -> list[Aim]:
    """Every aim whose contenders were measured."""
    limits = [
        (
            "Pump overhead",
            25.0,
            "µs CPU a message",
            compare(readings, "pump", "port", pump_overhead_us),
        ),
        ("Memory growth", 2.0, "MiB", growth_mib(readings.get("flat", ()))),
    ]
    return [
        *(
            Aim(
                title=title,
                target=target,
                is_upper=False,
                unit="× msg/s",
                measured=measured,
                by_cpu=compare(readings, ours, theirs, cheaper),
            )
            for title, target, ours, theirs in _RATIOS
            if (measured := compare(readings, ours, theirs, faster)) is not None
        ),
        *(
            Aim(title=title, target=target, is_upper=True, unit=unit, measured=measured)
            for title, target, unit, measured in limits
            if measured is not None
        ),
    ]
