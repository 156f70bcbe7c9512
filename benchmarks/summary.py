"""Summary: medians, ratios within a round, and how they stand to what we aim for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import attrs

from .brokers.catalogue import BROKER_RATIOS
from .growth.catalogue import SERIES
from .reading import Reading
from .s3.catalogue import S3_LIMITS, S3_RATES
from .server_aims import SERVER_LIMITS, Limit
from .spark.catalogue import SPARK_RATIOS
from .sqs_catalogue import SQS_FRAMEWORKS
from .sqs_latency.bounds import share_of_bound
from .sqs_latency.catalogue import FAR_MS, TRANSPORTS, name_of
from .watching.costs import OFF, added_us, dearer

Readings = Mapping[str, Sequence[Reading]]

_RATIOS = (
    ("Pumphouse memory to taskiq", 3.0, "pump", "taskiq"),
    ("The same, post by post", 3.0, "pump-single", "taskiq"),
    ("Pumphouse memory to dramatiq", 3.0, "pump", "dramatiq"),
    ("Pumphouse local to Huey", 10.0, "pump-local", "huey"),
    ("Pumphouse local to raw sqlite3", 0.25, "pump-local", "sqlite"),
    ("Pumphouse SQS to raw aioboto3", 0.9, "pump-sqs", "sqs-aioboto3"),
    ("Pumphouse SQS to the fastest framework", 1.7, "pump-sqs", "fastest"),
    ("Pumphouse SQS, lean, to the lean loop", 0.7, "pump-sqs-lean", "sqs-lean"),
    ("The same to raw aioboto3", 2.5, "pump-sqs-lean", "sqs-aioboto3"),
    ("The same to the fastest framework", 5.0, "pump-sqs-lean", "fastest"),
    ("The same to Celery", 20.0, "pump-sqs-lean", "sqs-celery"),
    ("Pumphouse SQS to raw aioboto3, 10 ms away", 0.9, "pump-sqs-far", "sqs-aioboto3-far"),
    ("The same to the fastest, 10 ms away", 1.7, "pump-sqs-far", "fastest-far"),
    ("pump local to LocalStack", 8.0, "life-pump-local", "life-localstack"),
    ("pump local to moto", 20.0, "life-pump-local", "life-moto"),
    *BROKER_RATIOS,
    *SPARK_RATIOS,
)
_MESSAGES = SERIES["messages"]
_MIN_FAR = 4_000
"""Fewer messages say nothing about what credits allow."""
_FASTEST = {
    "fastest": SQS_FRAMEWORKS,
    "fastest-far": tuple(f"{name}-far" for name in SQS_FRAMEWORKS),
}


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
    calls_per_thousand: Figure


@attrs.frozen(kw_only=True)
class Aim:
    """Something we want to hold, and what was measured."""

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
        calls_per_thousand=Figure.of([reading.calls_per_thousand for reading in readings]),
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


def calls(readings: Readings, *names: str) -> Figure | None:
    """Calls a thousand messages, of whichever of these makes more in a round."""
    rounds = _rounds(readings, names)
    most = [max(each.calls_per_thousand for each in round_) for round_ in rounds]
    return Figure.of(most) if most else None


def figures(readings: Readings, limit: Limit) -> Figure | None:
    """What a limit is about; None when nothing was measured that it is about."""
    found = [limit.measure(each) for each in readings.get(limit.contender, ()) if limit.fits(each)]
    return Figure.of(found) if found else None


def _cheapest(readings: Readings, watched: str, off: str) -> Figure | None:
    """How many times the processor time, of the cheapest round of each: a few per cent drown in
    what rounds differ by, and whatever disturbs a round only adds.
    """
    costs = [
        min((each.cpu_us for each in readings.get(name, ())), default=None)
        for name in (watched, off)
    ]
    if costs[0] is None or costs[1] is None:
        return None
    return Figure.of([costs[0] / costs[1]])


def _span_us(readings: Readings, name: str, span: str) -> Figure | None:
    found = [each.span_cpu_us(span) for each in readings.get(name, ())]
    return Figure.of(found) if found else None


def _cpu_ms(readings: Readings, name: str) -> Figure | None:
    """Milliseconds of processor time a thousand messages."""
    found = [each.cpu_us for each in readings.get(name, ())]
    return Figure.of(found) if found else None


def with_fastest(readings: Readings) -> Readings:
    """The readings, and beside them those of the fastest framework of each round."""
    found = {
        title: [max(round_, key=lambda each: each.rate) for round_ in _rounds(readings, names)]
        for title, names in _FASTEST.items()
    }
    return {**readings, **found}


def _rounds(readings: Readings, names: Sequence[str]) -> list[tuple[Reading, ...]]:
    return list(zip(*(readings[name] for name in names if name in readings), strict=False))


def aims(measured_readings: Readings) -> list[Aim]:
    """Every aim whose contenders were measured."""
    readings = with_fastest(measured_readings)
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
            Aim(title=title, target=target, is_upper=is_upper, unit=unit, measured=measured)
            for is_upper, found in ((False, _floors(readings)), (True, _limits(readings)))
            for title, target, unit, measured in found
            if measured is not None
        ),
    ]


_Found = tuple[str, float, str, Figure | None]
"""Title, target, unit, and what was measured."""


def _floors(readings: Readings) -> list[_Found]:
    """What shall not be less than its target."""
    return [
        *(
            (
                f"SQS, {latency_ms} ms away, {transport}: of what the credits allow",
                0.9,
                "× msg/s",
                _reached(readings, transport, latency_ms),
            )
            for latency_ms in FAR_MS
            for transport in TRANSPORTS
        ),
        *((each.title, each.target, each.unit, figures(readings, each)) for each in S3_RATES),
    ]


def _limits(readings: Readings) -> list[_Found]:
    """What shall not be more than its target."""
    return [
        (
            "Pump overhead",
            25.0,
            "µs CPU a message",
            compare(readings, "port-pump", "port", pump_overhead_us),
        ),
        (
            "Growth, a hundred times the messages",
            1.2,
            "× CPU a message",
            compare(readings, _MESSAGES[-1].name, _MESSAGES[0].name, dearer),
        ),
        (
            "Everything off to a build without the hooks",
            1.03,
            "× CPU",
            _cheapest(readings, OFF, "watched-bare"),
        ),
        (
            "Logs and metrics",
            20.0,
            "µs CPU a message",
            compare(readings, "watched-logs-metrics", OFF, added_us),
        ),
        ("Sealing 1 KiB", 10.0, "µs CPU a message", _span_us(readings, "seal-1k", "seal")),
        ("Opening 1 KiB", 10.0, "µs CPU a message", _span_us(readings, "seal-1k", "open")),
        ("Memory growth", 2.0, "MiB", growth_mib(readings.get("flat", ()))),
        (
            "SQS calls, either transport",
            230.0,
            "calls/1,000 msg",
            calls(readings, "pump-sqs", "pump-sqs-boto3"),
        ),
        (
            "SQS calls, lean",
            210.0,
            "calls/1,000 msg",
            calls(readings, "pump-sqs-lean"),
        ),
        (
            "SQS, lean: processor time",
            60.0,
            "ms CPU/1,000 msg",
            _cpu_ms(readings, "pump-sqs-lean"),
        ),
        (
            "SQS calls, 10 ms away",
            230.0,
            "calls/1,000 msg",
            calls(readings, "pump-sqs-far", "pump-sqs-boto3-far"),
        ),
        *(
            (each.title, each.target, each.unit, figures(readings, each))
            for each in (*SERVER_LIMITS, *S3_LIMITS)
        ),
    ]


def _reached(readings: Readings, transport: str, latency_ms: int) -> Figure | None:
    """None when there were so few that starting and stopping was most of it."""
    far = readings.get(name_of(transport, latency_ms), ())
    if any(each.messages < _MIN_FAR for each in far):
        return None
    return compare(readings, name_of(transport, latency_ms), name_of(transport, 0), share_of_bound)
