"""The report: what was measured, on what, and what follows from it. Values and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from .calls import Calls
from .percentiles import Spread
from .pricing import Cost
from .scratch import Left
from .suggestions import Suggestion

_LATE_S = 1.0
_LATE_SHARE = 0.05
"""Of the whole time: a pump that needs no more than this, or a second, to catch up keeps pace."""
_SERIES = 60
"""Into so many parts the time is cut for a machine to read."""


class Ended(StrEnum):
    """Why a run came to its end."""

    ALL = "all handled"
    TIME = "time over"
    STOPPED = "interrupted"


@attrs.frozen(kw_only=True)
class Settings:
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
    """Those of them that sent the messages; None when nobody can tell, as with a rate."""
    timeline: tuple[tuple[float, int], ...]
    """Seconds since the start, and how many were settled then."""
    errors: Mapping[str, int]
    ended: Ended

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
        if self.ended is Ended.TIME:
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
        """Requests a thousand messages; None when nobody counted, or nothing was done."""
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
    settings: Settings
    measured: Measured
    machine: Machine
    cost: Cost | None
    """None where nobody pays by the request, or nobody counted."""
    is_billed: bool
    """Whether the provider bills requests."""
    suggestions: tuple[Suggestion, ...] = ()
    warnings: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()

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
    if measured.ended is Ended.TIME:
        found.append(
            f"the time was over after {measured.done:,} of {measured.sent:,} messages; "
            f"the figures are of those{_but_sends(measured)}"
        )
    if measured.ended is Ended.STOPPED:
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
