"""Merged reports: the health of all workers of a run as one document. Pure.

| the process                          | is ready              | is alive                        |
|--------------------------------------|-----------------------|---------------------------------|
| starts, and has not been ready yet   | no                    | yes                             |
| runs                                 | as it says of itself  | as it says of itself            |
| runs, and does not answer            | no                    | no: its event loop does not turn|
| leaves: another one has its place    | is not asked          | yes                             |
| has ended, and will be restarted     | no                    | not when that goes on and on    |
| has ended for good                   | no                    | yes: a person should look first |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from .metrics_sum import Families, added as added_metrics, lasting, parse

Found = Mapping[str, Any]
Counts = Mapping[str, Mapping[str, int]]
"""Numbers by name, by subscription."""
# What needs a person first, comes first.
_STATES = ("failed", "stopped", "starting", "draining", "running", "paused", "drained")
_ASKED = ("drain", "pause", "run")


class ProcessState(StrEnum):
    """What one process of several does; the table above."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    WAITING = "waiting"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class ProcessReport:
    """One process at one moment."""

    number: int
    state: ProcessState
    pid: int | None = None
    restarts: int = 0
    failing_s: float | None = None
    """For how long it has been ending and being restarted; None when it is steady."""
    last_end: str | None = None
    """How the last one in its place ended without being told to: `exit code 1`, `SIGKILL`."""
    found: Found | None = None
    """What it says of itself; None when it did not."""

    def as_json(self) -> dict[str, object]:
        """What `/health` shows."""
        found = self.found or {}
        return {
            "process": self.number,
            "pid": self.pid,
            "state": self.state,
            "live": found.get("live"),
            "ready": found.get("ready"),
            "restarts": self.restarts,
            "last_end": self.last_end,
            "uptime_s": found.get("uptime_s"),
        }


def why_not_ready(report: ProcessReport) -> list[str]:
    """Why the process does not do what it should, nothing when it does."""
    match report.state:
        case ProcessState.LEAVING:
            return []
        case ProcessState.STARTING if report.found is None:
            return [_of(report, "it has not started yet")]
        case ProcessState.WAITING:
            return [_of(report, f"it ended ({report.last_end}) and will be restarted")]
        case ProcessState.STOPPED:
            return [_of(report, f"it has stopped ({report.last_end})")]
        case _ if report.found is None:
            return [_of(report, "it does not answer")]
        case _:
            return [_of(report, str(each)) for each in report.found.get("reasons") or []]


def why_not_live(report: ProcessReport, *, max_failing_s: float) -> list[str]:
    """Why the whole should be restarted, nothing when it should not; `found` is what `/livez`
    says.
    """
    if report.failing_s is not None and report.failing_s > max_failing_s:
        return [_of(report, f"it has been ending for {report.failing_s:.0f} s")]
    if report.state is not ProcessState.RUNNING:
        return []
    if report.found is None:
        return [_of(report, "it does not answer")]
    return [_of(report, str(each)) for each in report.found.get("reasons") or []]


Part = tuple[ProcessReport, Found]
"""A subscription, as a process sees it."""


def merged_subscriptions(
    reports: Iterable[ProcessReport], counted: Counts
) -> list[dict[str, object]]:
    """Every subscription of any process, in the order of the first that has it."""
    parts: dict[str, list[Part]] = {}
    for report in reports:
        for each in (report.found or {}).get("subscriptions") or []:
            parts.setdefault(str(each["name"]), []).append((report, each))
    return [merged(each, counted.get(name, {})) for name, each in parts.items()]


def merged(parts: Sequence[Part], counts: Mapping[str, int]) -> dict[str, object]:
    """One subscription, as several processes see it, and what all have done together.

    What counts messages or handlers is the sum. The last poll is the newest of all; of silence
    and failures the worst is told. A process that leaves is told of only by what is in flight,
    unless all do.
    """
    everyone = [found for _, found in parts]
    staying = [found for report, found in parts if report.state is not ProcessState.LEAVING]
    chosen = staying or everyone
    ages_s = [each["last_poll_age_s"] for each in chosen if each["last_poll_age_s"] is not None]
    return {
        "name": chosen[0]["name"],
        "queue": chosen[0]["queue"],
        "state": _first_of(_STATES, [each["state"] for each in chosen]),
        "asked": _first_of(_ASKED, [each["asked"] for each in chosen]),
        "concurrency": sum(each["concurrency"] for each in chosen),
        "in_hand": sum(each["in_hand"] for each in everyone),
        "running": sum(each["running"] for each in everyone),
        "last_poll_age_s": min(ages_s, default=None),
        "unanswered_s": max(each["unanswered_s"] for each in chosen),
        "failed_polls": max(each["failed_polls"] for each in chosen),
        "last_error": _first_error(parts),
        "counts": dict(counts),
    }


def added(one: Counts, other: Counts) -> dict[str, dict[str, int]]:
    """The numbers of each subscription, added."""
    names = dict.fromkeys((*one, *other))
    return {name: _total(one.get(name, {}), other.get(name, {})) for name in names}


def _total(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in dict.fromkeys((*one, *other))}


def _first_of(order: Sequence[str], found: Sequence[str]) -> str:
    known = [each for each in order if each in found]
    return known[0] if known else found[0]


def _first_error(parts: Sequence[Part]) -> str | None:
    for report, found in parts:
        if found["last_error"] is not None:
            return _of(report, str(found["last_error"]))
    return None


def _of(report: ProcessReport, why: str) -> str:
    return f"process {report.number}: {why}"


# Tally: what processes have counted, and the sums of that. Pure.


@attrs.frozen(kw_only=True)
class ProcessTally:
    """What one process, or several together, had counted when they were last heard of."""

    counts: Counts = attrs.field(factory=dict)
    metrics: Families = attrs.field(factory=dict)
    discarded: int = 0
    spilled: int = 0

    def plus(self, other: ProcessTally) -> ProcessTally:
        """Both together."""
        return ProcessTally(
            counts=added(self.counts, other.counts),
            metrics=added_metrics([self.metrics, other.metrics]),
            discarded=self.discarded + other.discarded,
            spilled=self.spilled + other.spilled,
        )

    def lasting(self) -> ProcessTally:
        """What stays once the process has ended."""
        return attrs.evolve(self, metrics=lasting(self.metrics))

    def with_document(self, found: Mapping[str, Any]) -> ProcessTally:
        """Brought up to date by what a process says of all its subscriptions, or of one."""
        told = found.get("subscriptions", [found] if "counts" in found else [])
        counts = {each["name"]: each["counts"] for each in told}
        return attrs.evolve(self, counts={**self.counts, **counts})

    def with_metrics(self, text: bytes) -> ProcessTally:
        """Brought up to date by a process's metrics."""
        return attrs.evolve(self, metrics=parse(text))

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> ProcessTally:
        """The last word of a process."""
        return cls(
            counts=said["counts"],
            metrics=parse(said["metrics"].encode()),
            discarded=said["discarded"],
            spilled=said["spilled"],
        )
