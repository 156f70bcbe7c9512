"""The report: what was measured, on what, and what follows from it. Values and arithmetic."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from math import ceil
from typing import Any

import attrs

from ..clock import format_duration
from ..percentiles import percentile
from .scratch import Leftover

# Pricing: dollars for requests, where a provider bills them. Pure.
#
# | gateway | billed                                                                         |
# |---------|--------------------------------------------------------------------------------|
# | sqs     | every request, and once more for each further 64 KB of its messages            |
# | s3      | PUT and LIST, GET at a twelfth of that; DELETE is free                         |
# | others  | nothing by the request: machines, disks or plans cost, and are not seen here   |

_SQS_BATCH = 10
_SQS_CHUNK_BYTES = 64 * 1024


@attrs.frozen(kw_only=True)
class RequestPrices:
    """Dollars."""

    puts_1000: float = 0.005
    lists_1000: float = 0.005
    gets_1000: float = 0.0004
    sqs_million: float = 0.40
    sqs_fifo_million: float = 0.50
    source: str = "list prices of us-east-1, S3 Standard and SQS, 2025"

    @classmethod
    def given(cls, **prices: float | None) -> RequestPrices:
        """These, and list prices for those that are None; one for SQS is for FIFO queues too."""
        prices["sqs_fifo_million"] = prices.get("sqs_million")
        known = {name: price for name, price in prices.items() if price is not None}
        if not known:
            return cls()
        return attrs.evolve(cls(**known), source="prices as given, else list prices")  # type: ignore[arg-type]


@attrs.frozen(kw_only=True)
class Cost:
    """What a million messages like the measured ones cost in requests; an estimate."""

    dollars_a_million: float
    is_counted: bool
    """Whether the gateway counted its requests; else they are derived from the pump's calls."""
    source: str
    """Whose prices."""


@attrs.frozen(kw_only=True)
class Traffic:
    """What went through a gateway."""

    messages: int
    body_bytes: int
    calls: Calls
    requests: Mapping[str, float] | None
    is_fifo: bool = False
    """Whether the queue is one of the dearer kind that SQS has."""


def is_billed(gateway: str) -> bool:
    """Whether the provider behind the gateway of this scheme bills requests."""
    return gateway in ("sqs", "s3")


def cost_of(gateway: str, traffic: Traffic, prices: RequestPrices) -> Cost | None:
    """The cost on the gateway of this scheme; None when it has none, or it cannot be known."""
    if not traffic.messages:
        return None
    dollars = None
    if gateway == "sqs":
        million = prices.sqs_fifo_million if traffic.is_fifo else prices.sqs_million
        dollars = _sqs_requests(traffic) * million / 1e6
    elif gateway == "s3" and traffic.requests is not None:
        dollars = _s3_dollars(traffic.requests, prices)
    if dollars is None:
        return None
    return Cost(
        dollars_a_million=dollars / traffic.messages * 1e6,
        is_counted=traffic.requests is not None,
        source=prices.source,
    )


def _sqs_requests(traffic: Traffic) -> float:
    if traffic.requests is not None:
        requests = float(sum(traffic.requests.values()))
    else:
        sends, calls = ceil(traffic.messages / _SQS_BATCH), traffic.calls
        requests = float(sends + calls.receives + calls.settles + calls.extends)
    return requests + _further_chunks(traffic)


def _further_chunks(traffic: Traffic) -> float:
    """What is billed beside the request itself, for what is sent and what is received."""
    together = min(_SQS_BATCH, max(1, traffic.messages))
    chunks = ceil(together * traffic.body_bytes / _SQS_CHUNK_BYTES)
    return 2 * max(0, chunks - 1) * traffic.messages / together


def _s3_dollars(requests: Mapping[str, float], prices: RequestPrices) -> float:
    thousand = {
        "put": prices.puts_1000,
        "list": prices.lists_1000,
        "get": prices.gets_1000,
        "remove": 0.0,
    }
    # A kind that is not known here is taken for the dearest.
    return sum(
        count * thousand.get(kind, prices.puts_1000) / 1000 for kind, count in requests.items()
    )


# Calls: what a pump asked of its gateway while it was measured.


@attrs.frozen(kw_only=True)
class Calls:
    """Calls of a gateway's ports. One may be several requests to the provider, or none."""

    sends: int = 0
    receives: int = 0
    empty_receives: int = 0
    settles: int = 0
    extends: int = 0
    received: int = 0
    """Messages that receives brought."""
    settled: int = 0
    """Messages that settle calls were about."""

    @property
    def mean_received(self) -> float | None:
        """Messages a receive that brought any."""
        full = self.receives - self.empty_receives
        return self.received / full if full else None


_LATE_S = 1.0
_LATE_SHARE = 0.05
"""Of the whole time: a pump that needs no more than this, or a second, to catch up keeps pace."""
_SERIES = 60
"""Into so many parts the time is cut for a machine to read."""


class EndReason(StrEnum):
    """Why a run came to its end."""

    ALL = "all handled"
    TIME = "time over"
    STOPPED = "interrupted"


@attrs.frozen(kw_only=True)
class MeasuredSettings:
    """What the measured subscription was like, and what its gateway can do."""

    concurrency: int
    prefetch: int | None
    lease_s: float
    renew: bool
    ordering_guarantee: bool
    in_hand: int
    receive_batch: int
    is_remote: bool
    """Whether the broker may be on another machine."""
    is_shared: bool = True
    """Whether several processes can have its queues in common."""
    groups: int = 0
    """Over how many ordering groups the messages were spread; 0 for messages without one."""
    options_left_out: tuple[str, ...] = ()
    """Options of the queue that the throw-away one does not have."""


@attrs.frozen(kw_only=True)
class Measured:
    """What happened between the first message that could be handled and the last settlement."""

    rate: float | None
    """Messages a second that were asked for; None when all of them waited."""
    sent: int
    send_s: float
    """How long the sends took; with a rate, as long as it prescribes."""
    handled: int
    rejected: int
    retried: int
    lost: int
    """Leases that ended before their message was settled."""
    wall_s: float
    cpu_s: float
    busy_s: float
    """How long handlers ran, all of them together."""
    latency: Spread | None
    """From a message's send, or from when that was due, to the end of its handlers."""
    run: Spread | None
    """How long a message was in the hands of its handlers, decoding included."""
    calls: Calls
    requests: Mapping[str, int] | None
    """What the gateway asked of its provider by kind; None when it does not count."""
    send_requests: Mapping[str, int] | None
    """Those of them that sent the messages; None when that is unknown, as with a rate."""
    timeline: tuple[tuple[float, int], ...]
    """Seconds since the start, and how many were settled then."""
    errors: Mapping[str, int]
    ended: EndReason

    @property
    def done(self) -> int:
        """Messages that have left their queue for good."""
        return self.handled + self.rejected

    @property
    def throughput(self) -> float:
        """Messages a second."""
        return self.done / self.wall_s if self.wall_s else 0.0

    @property
    def kept_pace(self) -> bool | None:
        """Whether what was due was handled soon after, so that no queue grew; None when there was
        no pace to keep. Of a run that was interrupted: until then.
        """
        if self.rate is None:
            return None
        if self.ended is EndReason.TIME:
            return False
        due_s = self.done / self.rate
        longest_s = self.run.p99_s if self.run else 0.0
        return self.wall_s <= due_s + max(_LATE_S, _LATE_SHARE * due_s, 2 * longest_s)

    @property
    def send_rate(self) -> float:
        """Messages a second that were sent."""
        return self.sent / self.send_s if self.send_s else 0.0

    @property
    def cpu_us(self) -> float | None:
        """Processor time a message, in microseconds."""
        return self.cpu_s / self.done * 1e6 if self.done else None

    @property
    def cpu_share(self) -> float:
        """Of one core."""
        return self.cpu_s / self.wall_s if self.wall_s else 0.0

    @property
    def requests_a_thousand(self) -> float | None:
        """Requests a thousand messages; None when not counted, or nothing was done."""
        requests = self.requests_of_done
        return (
            None if requests is None or not self.done else sum(requests.values()) / self.done * 1000
        )

    @property
    def requests_of_done(self) -> Mapping[str, float] | None:
        """Requests by kind, without those that sent what was still in the queue at the end."""
        if self.requests is None:
            return None
        in_vain = 1 - self.done / self.sent if self.sent else 0.0
        sends = self.send_requests or {}
        return {kind: count - in_vain * sends.get(kind, 0) for kind, count in self.requests.items()}


@attrs.frozen(kw_only=True)
class Machine:
    """Where it was measured. Loads are None where the system does not say."""

    cores: int
    python: str
    load_before: float | None
    load_after: float | None

    @property
    def is_busy(self) -> bool:
        """Whether more wanted to run than there are cores."""
        return max(self.load_before or 0.0, self.load_after or 0.0) > self.cores


@attrs.frozen(kw_only=True)
class BenchReport:
    """Everything there is to say about a run."""

    app: str
    gateway: str
    subscription: str
    queue: str
    """The throw-away queue."""
    handler: str
    """`app` or `none`."""
    body_bytes: int
    settings: MeasuredSettings
    measured: Measured
    machine: Machine
    cost: Cost | None
    """None where requests cost nothing, or were not counted."""
    is_billed: bool
    """Whether the provider bills requests."""
    suggestions: tuple[Suggestion, ...] = ()
    warnings: tuple[str, ...] = ()
    left: tuple[Leftover, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values; the names are stable."""
        measured = self.measured
        values = attrs.asdict(self)
        del values["measured"]["timeline"]
        values["measured"] |= {
            "ended": measured.ended.value,
            "series": series(measured.timeline, measured.wall_s, _SERIES),
            "series_slot_s": measured.wall_s / _SERIES,
            "throughput": measured.throughput,
            "kept_pace": measured.kept_pace,
            "send_rate": measured.send_rate,
            "cpu_us": measured.cpu_us,
            "cpu_share": measured.cpu_share,
            "requests_a_thousand": measured.requests_a_thousand,
        }
        values["machine"]["is_busy"] = self.machine.is_busy
        return values


def warnings_of(measured: Measured, machine: Machine) -> tuple[str, ...]:
    """What makes the figures doubtful."""
    found = []
    if machine.is_busy:
        load = max(machine.load_before or 0.0, machine.load_after or 0.0)
        found.append(
            f"the machine was busy (load {load:.1f} on {machine.cores} cores): "
            f"measure again when it is quiet"
        )
    if measured.ended is EndReason.TIME:
        found.append(
            f"the time was over after {measured.done:,} of {measured.sent:,} messages; "
            f"the figures are of those{_but_sends(measured)}"
        )
    if measured.ended is EndReason.STOPPED:
        found.append(f"interrupted after {measured.done:,} of {measured.sent:,} messages")
    if measured.rejected or measured.retried:
        kinds = ", ".join(f"{name} ({count:,})" for name, count in sorted(measured.errors.items()))
        found.append(
            f"{measured.rejected:,} message(s) were rejected and {measured.retried:,} deliveries "
            f"retried, which the figures include: {kinds or 'no error was raised'}"
        )
    return tuple(found)


def _but_sends(measured: Measured) -> str:
    if not measured.requests or measured.send_requests is not None:
        return ""
    return ", but requests and cost include the sends of all"


def series(timeline: tuple[tuple[float, int], ...], wall_s: float, slots: int) -> list[float]:
    """Messages a second in each of so many equal parts of the time."""
    if not wall_s or not slots:
        return []
    slot_s = wall_s / slots
    counts = [0] * slots
    for moment_s, count in timeline:
        counts[min(max(int(moment_s / slot_s), 0), slots - 1)] += count
    return [count / slot_s for count in counts]


# The machine a run was measured on, as far as the system says.


def load_average() -> float | None:
    """Of the last minute; None where the system keeps none."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def machine_now(load_before: float | None) -> Machine:
    """The machine after a run before which its load was this."""
    return Machine(
        cores=_cores(),
        python=platform.python_version(),
        load_before=load_before,
        load_after=load_average(),
    )


def _cores() -> int:
    # A container may be allowed fewer than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Percentiles of durations, by nearest rank: each is a duration that was really measured. Pure.


@attrs.frozen(kw_only=True)
class Spread:
    """How durations are spread; at least one was measured."""

    count: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float


def spread_of(durations_s: Iterable[float]) -> Spread | None:
    """How these are spread; None when there are none."""
    ordered = sorted(durations_s)
    if not ordered:
        return None
    return Spread(
        count=len(ordered),
        # Rounding must not put a mean outside of what it is the mean of.
        mean_s=min(max(sum(ordered) / len(ordered), ordered[0]), ordered[-1]),
        p50_s=percentile(ordered, 0.5),
        p90_s=percentile(ordered, 0.9),
        p99_s=percentile(ordered, 0.99),
        max_s=ordered[-1],
    )


# Suggestions: what to change, and why, from what was measured. Pure rules, each on its own.
#
# A rule speaks only when the figures show what it speaks of; most runs end without any.

_BUSY = 0.8
"""Handlers that run this share of the time leave no room for more messages."""
_CPU_BOUND = 0.85
"""Of one core: Python runs on no more than one at a time."""
_MAX_FACTOR = 8
_SHORT_S = 1.0
_FEW = 10
"""Fewer receives say nothing of their mean."""


@attrs.frozen(kw_only=True)
class Suggestion:
    """What to change, and the figures that say so."""

    setting: str
    advice: str
    reason: str


Rule = Callable[["Measured", "MeasuredSettings"], Iterator[Suggestion]]


def suggest(measured: Measured, settings: MeasuredSettings) -> tuple[Suggestion, ...]:
    """Everything the figures say, the most rewarding first."""
    if not measured.handled:
        return ()
    return tuple(found for rule in _RULES for found in rule(measured, settings))


def _lost_leases(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    if not measured.lost:
        return
    longest_s = measured.run.max_s if measured.run else 0.0
    lease_s = max(2 * settings.lease_s, 3 * longest_s)
    advice = f"use {_seconds(lease_s)}" + ("" if settings.renew else ", or renew=True")
    yield Suggestion(
        setting="lease",
        advice=advice,
        reason=f"{measured.lost:,} lease(s) of {format_duration(settings.lease_s)} ended before "
        f"their message was settled, so it was handled again",
    )


def _unrenewed_lease(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    if measured.lost or settings.renew or measured.run is None:
        return
    if measured.run.p99_s > settings.lease_s / 2:
        yield Suggestion(
            setting="lease",
            advice=f"use {_seconds(3 * measured.run.p99_s)}, or renew=True",
            reason=f"one message in a hundred takes {format_duration(measured.run.p99_s)}, and "
            f"nothing extends its lease of {format_duration(settings.lease_s)}",
        )


def _much_extended(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    if measured.run is None or measured.lost or measured.calls.extends * 10 < measured.done:
        return
    yield Suggestion(
        setting="lease",
        advice=f"use {_seconds(max(3 * measured.run.p99_s, 2 * settings.lease_s))}",
        reason=f"{measured.calls.extends:,} calls only extended leases: a longer one makes fewer, "
        f"and the price is that the messages of a process that dies come again later",
    )


def _concurrency(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    busy = _busy(measured, settings)
    if busy < _BUSY or measured.cpu_share >= _CPU_BOUND or measured.kept_pace:
        return
    reason = (
        f"handlers were busy {busy:.0%} of the time while the processor was used "
        f"{measured.cpu_share:.0%}: they wait for something, and more of them can wait at once"
    )
    if settings.ordering_guarantee and settings.groups <= settings.concurrency:
        some = f"more groups than {settings.groups}" if settings.groups else "a group"
        advice = f"give messages {some} where their order allows it: one of each runs at a time"
        yield Suggestion(setting="ordering_guarantee", advice=advice, reason=reason)
        return
    factor = min(_MAX_FACTOR, max(2.0, _BUSY / max(measured.cpu_share, 0.01)))
    advice = f"try {ceil(settings.concurrency * factor)} instead of {settings.concurrency}"
    yield Suggestion(setting="concurrency", advice=advice, reason=reason)


def _processes(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    if measured.cpu_share >= _CPU_BOUND and not measured.kept_pace:
        run_more = "run it with `pump run --processes auto`"
        if not settings.is_shared:
            run_more = "several processes need a gateway that they share, such as local://"
        yield Suggestion(
            setting="processes",
            advice=f"{run_more}; more concurrency does not help",
            reason=f"the processor was used {measured.cpu_share:.0%} of one core, which is all "
            f"that one Python process has",
        )


def _prefetch(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    wanted = settings.concurrency
    is_starved = _busy(measured, settings) < _BUSY and measured.cpu_share < _CPU_BOUND
    if settings.prefetch is None or settings.prefetch >= wanted or not is_starved:
        return
    if measured.rate is not None or settings.ordering_guarantee:
        return
    yield Suggestion(
        setting="prefetch",
        advice=f"leave it out, or use {wanted} instead of {settings.prefetch}",
        reason=f"handlers were busy only {_busy(measured, settings):.0%} of the time although "
        f"messages were waiting: they wait for the next receive",
    )


def _batching(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    mean = measured.calls.mean_received
    # Where the broker is in this process or on this machine, a call more costs next to nothing.
    if measured.rate is not None or not settings.is_remote or mean is None:
        return
    if measured.calls.receives < _FEW:
        return
    if settings.in_hand >= settings.receive_batch or mean > settings.receive_batch / 2:
        return
    yield Suggestion(
        setting="batching",
        advice=f"let {settings.receive_batch} or more be in flight: concurrency and prefetch "
        f"together are {settings.in_hand}",
        reason=f"a receive brought {mean:.1f} messages of the {settings.receive_batch} it could, "
        f"so the same messages take more calls",
    )


def _behind(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    if measured.rate is not None and not measured.kept_pace:
        yield Suggestion(
            setting="rate",
            advice="measure without --rate to see how much it can do",
            reason=f"{measured.throughput:,.1f} messages a second were handled of the "
            f"{measured.rate:,.1f} that were due: the queue grows, and latency with it",
        )


def _backlog_latency(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    if measured.rate is None and measured.throughput >= 2:
        yield Suggestion(
            setting="--rate",
            advice=f"measure latency with --rate {measured.throughput / 2:.0f}",
            reason="all messages waited when the first was handled, so the time from send to "
            "handled is that of a backlog; at half of what it can do it is that of a message",
        )


def _short(measured: Measured, settings: MeasuredSettings) -> Iterator[Suggestion]:
    if measured.wall_s < _SHORT_S and measured.rate is None:
        more = ceil(measured.throughput * 5 * _SHORT_S / 1000) * 1000
        yield Suggestion(
            setting="--messages",
            advice=f"use --messages {more}",
            reason=f"it was over in {format_duration(measured.wall_s)}: starting up is a good part "
            f"of that",
        )


_RULES: tuple[Rule, ...] = (
    _lost_leases,
    _unrenewed_lease,
    _much_extended,
    _behind,
    _concurrency,
    _processes,
    _prefetch,
    _batching,
    _short,
    _backlog_latency,
)


def _busy(measured: Measured, settings: MeasuredSettings) -> float:
    """Which share of the handlers that may run at once did run, over the time."""
    if not measured.wall_s:
        return 0.0
    at_once = settings.concurrency
    if settings.ordering_guarantee:
        at_once = min(at_once, max(1, settings.groups))
    return min(1.0, measured.busy_s / (measured.wall_s * at_once))


def _seconds(seconds: float) -> str:
    return f"{ceil(seconds)}s"
