"""Aims: medians, ratios within a round, and how they stand to what we want to hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import attrs

from .catalogue import FAR_MS, GROWTH_SERIES, SQS_FRAMEWORKS, TRANSPORTS, credits_name
from .reading import Reading

Readings = Mapping[str, Sequence[Reading]]
Compare = Callable[[Reading, Reading], float]


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


def row_of(name: str, readings: Sequence[Reading]) -> Row:
    """The medians of a contender."""
    return Row(
        name=name,
        messages=readings[0].messages,
        rate=Figure.of([reading.rate for reading in readings]),
        cpu_us=Figure.of([reading.cpu_us for reading in readings]),
        calls_per_thousand=Figure.of([reading.calls_per_thousand for reading in readings]),
    )


# Two contenders, round by round.


def compare(readings: Readings, ours: str, theirs: str, by: Compare) -> Figure | None:
    """Compare two contenders round by round; None when one of them was not measured."""
    pairs = list(zip(readings.get(ours, ()), readings.get(theirs, ()), strict=False))
    return Figure.of([by(mine, other) for mine, other in pairs]) if pairs else None


def faster(mine: Reading, other: Reading) -> float:
    """How many times the messages a second."""
    return mine.rate / other.rate


def cheaper(mine: Reading, other: Reading) -> float:
    """How many times less processor time a message."""
    return other.cpu_us / mine.cpu_us


def dearer(mine: Reading, other: Reading) -> float:
    """How many times the processor time a message."""
    return mine.cpu_us / other.cpu_us


def added_us(mine: Reading, other: Reading) -> float:
    """Processor time a message that comes on top of the other's."""
    return mine.cpu_us - other.cpu_us


def pump_overhead_us(pump: Reading, port: Reading) -> float:
    """Processor time a message that the pump adds to receiving and settling."""
    return pump.span_cpu_us("pump") - port.span_cpu_us("pump")


@attrs.frozen
class Bound:
    """The most messages a second, and what sets it."""

    rate: float
    limit: str


def bound_of(far: Reading, near: Reading) -> Bound:
    """What a pump far from SQS could do at best, with `near` for its processor's share.

    | the limit | is reached when                                                              |
    |-----------|------------------------------------------------------------------------------|
    | credits   | each is bound for a receive, a delete and the processor time of its batch    |
    | pollers   | as many receives as the gateway may have are under way, with full batches    |
    | deletes   | the same of the deletes                                                      |
    | processor | the pump is as fast as with no distance at all                               |
    """
    figures = far.figures
    call_s = figures["call_ms"] / 1000
    batch = figures["batch_count"]
    work_s = batch * near.cpu_us / 1e6
    rates = {
        "credits": figures["credit_count"] / (2 * call_s + work_s),
        "pollers": figures["poller_count"] * batch / call_s,
        "deletes": figures["delete_call_count"] * batch / call_s,
        "processor": near.rate,
    }
    limit = min(rates, key=lambda name: rates[name])
    return Bound(rates[limit], limit)


def share_of_bound(far: Reading, near: Reading) -> float:
    """Which part of it was reached."""
    return far.rate / bound_of(far, near).rate


# One contender.


def billable(reading: Reading) -> float:
    """Requests to S3 a message that cost something: removing is free."""
    calls = sum(count for kind, count in reading.calls.items() if kind != "delete")
    return calls / reading.messages


def growth_mib(reading: Reading) -> float:
    """By how much resident memory grew from the first sample on."""
    return max(reading.rss_mib) - reading.rss_mib[0]


# What we aim for.

OFF = "watched-off"
_FASTEST = {
    "fastest": SQS_FRAMEWORKS,
    "fastest-postgres": ("postgres-procrastinate", "postgres-pgqueuer"),
    "fastest-far": tuple(f"{name}-far" for name in SQS_FRAMEWORKS),
}


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


@attrs.frozen
class _Goal:
    """What an aim is before anything was measured."""

    title: str
    target: float
    unit: str
    measure: Callable[[Readings], Figure | None]
    """None when nothing was measured that the goal is about."""
    measure_cpu: Callable[[Readings], Figure | None] = lambda _: None

    def aim(self, readings: Readings, *, is_upper: bool) -> Aim | None:
        measured = self.measure(readings)
        if measured is None:
            return None
        return Aim(
            title=self.title,
            target=self.target,
            is_upper=is_upper,
            unit=self.unit,
            measured=measured,
            by_cpu=self.measure_cpu(readings),
        )


def aims(measured_readings: Readings) -> list[Aim]:
    """Every aim whose contenders were measured."""
    readings = with_fastest(measured_readings)
    found = [
        *(goal.aim(readings, is_upper=False) for goal in _AT_LEAST),
        *(goal.aim(readings, is_upper=True) for goal in _AT_MOST),
    ]
    return [aim for aim in found if aim is not None]


def with_fastest(readings: Readings) -> Readings:
    """The readings, and beside them those of the fastest framework of each round."""
    found = {
        title: [max(round_, key=lambda each: each.rate) for round_ in _rounds(readings, names)]
        for title, names in _FASTEST.items()
    }
    return {**readings, **found}


def _rounds(readings: Readings, names: Sequence[str]) -> list[tuple[Reading, ...]]:
    return list(zip(*(readings[name] for name in names if name in readings), strict=False))


def _ratio(title: str, target: float, ours: str, theirs: str) -> _Goal:
    return _Goal(
        title,
        target,
        "× msg/s",
        lambda readings: compare(readings, ours, theirs, faster),
        lambda readings: compare(readings, ours, theirs, cheaper),
    )


def _pair(ours: str, theirs: str, by: Compare) -> Callable[[Readings], Figure | None]:
    return lambda readings: compare(readings, ours, theirs, by)


def _each(
    name: str, figure: Callable[[Reading], float], *, min_messages: int = 1
) -> Callable[[Readings], Figure | None]:
    """A figure of one contender; measured with fewer messages it says nothing about the goal."""

    def measure(readings: Readings) -> Figure | None:
        found = [figure(each) for each in readings.get(name, ()) if each.messages >= min_messages]
        return Figure.of(found) if found else None

    return measure


def _calls(*names: str) -> Callable[[Readings], Figure | None]:
    """Calls a thousand messages, of whichever of these makes more in a round."""

    def measure(readings: Readings) -> Figure | None:
        rounds = _rounds(readings, names)
        most = [max(each.calls_per_thousand for each in round_) for round_ in rounds]
        return Figure.of(most) if most else None

    return measure


def _share_of_credits(transport: str, latency_ms: int) -> _Goal:
    """With few messages starting and stopping is most of it, and there is no aim."""
    far, near = credits_name(transport, latency_ms), credits_name(transport, 0)

    def measure(readings: Readings) -> Figure | None:
        if any(each.messages < 4_000 for each in readings.get(far, ())):
            return None
        return compare(readings, far, near, share_of_bound)

    title = f"SQS, {latency_ms} ms away, {transport}: of what the credits allow"
    return _Goal(title, 0.9, "× msg/s", measure)


def _cost_of_hooks(readings: Readings) -> Figure | None:
    """Of the cheapest round of each: a few per cent drown in what rounds differ by, and whatever
    disturbs a round only adds.
    """
    if not (readings.get(OFF) and readings.get("watched-bare")):
        return None
    off, bare = (min(each.cpu_us for each in readings[name]) for name in (OFF, "watched-bare"))
    return Figure.of([off / bare])


def _pending(title: str, target: float, unit: str, figure: Callable[[Reading], float]) -> _Goal:
    measure = _each("pending-pump-local", figure, min_messages=1_000_000)
    return _Goal(title, target, unit, measure)


_MESSAGES = GROWTH_SERIES["messages"]
_CPU, _CALLS, _REQUESTS = "µs CPU a message", "calls/1,000 msg", "requests/msg"

_AT_LEAST = (
    _ratio("Pumphouse memory to taskiq", 3.0, "pump", "taskiq"),
    _ratio("The same, post by post", 3.0, "pump-single", "taskiq"),
    _ratio("Pumphouse memory to dramatiq", 3.0, "pump", "dramatiq"),
    _ratio("Pumphouse local to Huey", 10.0, "pump-local", "huey"),
    _ratio("Pumphouse local to raw sqlite3", 0.25, "pump-local", "sqlite"),
    _ratio("Pumphouse SQS to raw aioboto3", 0.9, "pump-sqs", "sqs-aioboto3"),
    _ratio("Pumphouse SQS to the fastest framework", 1.7, "pump-sqs", "fastest"),
    _ratio("Pumphouse SQS, lean, to the lean loop", 0.7, "pump-sqs-lean", "sqs-lean"),
    _ratio("The same to raw aioboto3", 2.5, "pump-sqs-lean", "sqs-aioboto3"),
    _ratio("The same to the fastest framework", 5.0, "pump-sqs-lean", "fastest"),
    _ratio("The same to Celery", 20.0, "pump-sqs-lean", "sqs-celery"),
    _ratio("Pumphouse SQS to raw aioboto3, 10 ms away", 0.9, "pump-sqs-far", "sqs-aioboto3-far"),
    _ratio("The same to the fastest, 10 ms away", 1.7, "pump-sqs-far", "fastest-far"),
    _ratio("pump local to LocalStack", 8.0, "life-pump-local", "life-localstack"),
    _ratio("pump local to moto", 20.0, "life-pump-local", "life-moto"),
    _ratio("Pumphouse RabbitMQ to FastStream", 1.0, "rabbitmq-pump", "rabbitmq-faststream"),
    _ratio("Pumphouse RabbitMQ to dramatiq", 1.0, "rabbitmq-pump", "rabbitmq-dramatiq"),
    _ratio("Pumphouse RabbitMQ to Celery", 1.0, "rabbitmq-pump", "rabbitmq-celery"),
    _ratio("Pumphouse NATS to FastStream", 1.0, "nats-pump", "nats-faststream"),
    _Goal(
        "Outbox, one relay", 5_000.0, "msg/s", _each("outbox-relay-memory", lambda each: each.rate)
    ),
    _Goal("Pumphouse Postgres", 10_000.0, "msg/s", _each("postgres-pump", lambda each: each.rate)),
    _ratio("The same to the fastest framework", 3.0, "postgres-pump", "fastest-postgres"),
    _ratio("The same to the raw loop", 0.5, "postgres-pump", "postgres-raw"),
    *(
        _ratio(f"Postgres, {kind}, beside an open transaction", 0.95, held, f"postgres-{kind}")
        for kind in ("plain", "grouped", "retried")
        for held in (f"postgres-{kind}-held",)
    ),
    _ratio(
        "The pump on Spark, local[2], to two processes", 0.8, "spark-local-2", "spark-processes-2"
    ),
    _ratio("The same, 5 ms of CPU each", 0.8, "spark-toil-local-2", "spark-toil-processes-2"),
    # "Scaling with cores" is read as 1.6 times with two: server and driver need some too.
    _ratio("Two cores of Spark to one, the same", 1.6, "spark-toil-local-2", "spark-toil-local-1"),
    *(_share_of_credits(transport, ms) for ms in FAR_MS for transport in TRANSPORTS),
    _Goal(
        "S3, layout log, 60 ms away, 10 consumers",
        500.0,
        "msg/s",
        _each("s3-log-far-10", lambda each: each.rate),
    ),
    _Goal(
        "The same, 100 consumers",
        500.0,
        "msg/s",
        _each("s3-log-far-100", lambda each: each.rate),
    ),
)
"""What shall not be less than its target."""

_AT_MOST = (
    _Goal("Pump overhead", 25.0, _CPU, _pair("port-pump", "port", pump_overhead_us)),
    _Goal(
        "Growth, a hundred times the messages",
        1.2,
        "× CPU a message",
        _pair(_MESSAGES[-1].name, _MESSAGES[0].name, dearer),
    ),
    _Goal("Everything off to a build without the hooks", 1.03, "× CPU", _cost_of_hooks),
    _Goal("Logs and metrics", 20.0, _CPU, _pair("watched-logs-metrics", OFF, added_us)),
    _Goal("Sealing 1 KiB", 10.0, _CPU, _each("seal-1k", lambda each: each.span_cpu_us("seal"))),
    _Goal("Opening 1 KiB", 10.0, _CPU, _each("seal-1k", lambda each: each.span_cpu_us("open"))),
    _Goal("Memory growth", 2.0, "MiB", _each("flat", growth_mib)),
    _Goal("SQS calls, either transport", 230.0, _CALLS, _calls("pump-sqs", "pump-sqs-boto3")),
    _Goal("SQS calls, lean", 210.0, _CALLS, _calls("pump-sqs-lean")),
    _Goal(
        "SQS, lean: processor time",
        60.0,
        "ms CPU/1,000 msg",
        _each("pump-sqs-lean", lambda each: each.cpu_us),
    ),
    _Goal("SQS calls, 10 ms away", 230.0, _CALLS, _calls("pump-sqs-far", "pump-sqs-boto3-far")),
    _Goal(
        "pump local, send to receive, p99 at 1,000 msg/s",
        10.0,
        "ms",
        _each("latency-pump-local", lambda each: each.figures["receiving_p99_ms"]),
    ),
    _Goal(
        "Outbox, commit to broker, p99 at 500 msg/s",
        50.0,
        "ms",
        _each("outbox-latency-memory", lambda each: each.figures["p99_ms"]),
    ),
    _pending(
        "pump local, memory with a million pending",
        1.5,
        "GiB",
        lambda each: max(each.rss_mib) / 1024,
    ),
    _pending(
        "The same, receive p50 to that with 1,000 pending",
        1.2,
        "×",
        lambda each: each.figures["many_p50_ms"] / each.figures["few_p50_ms"],
    ),
    _pending("The same, start", 10.0, "s", lambda each: each.figures["start_s"]),
    *(
        _Goal(
            f"Postgres, send to receive, {waiting} waiting, p99 at 1,000 msg/s",
            20.0,
            "ms",
            _each(f"postgres-latency-{waiting}", lambda each: each.figures["receiving_p99_ms"]),
        )
        for waiting in (1, 100)
    ),
    _Goal("S3, layout leases, billable requests", 3.0, _REQUESTS, _each("s3-leases", billable)),
    _Goal("S3, layout log, billable requests", 0.1, _REQUESTS, _each("s3-log", billable)),
    _Goal(
        "The same, 60 ms away, 100 consumers in four processes",
        0.1,
        _REQUESTS,
        _each("s3-log-far-100-in-4", billable),
    ),
)
"""What shall not be more than its target."""
