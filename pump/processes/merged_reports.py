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

from ..observability import vocabulary

# Sums: the metrics of several processes as if one had measured them. Pure.
#
# | of a process that | its counters and histograms         | its gauges                         |
# |-------------------|-------------------------------------|------------------------------------|
# | answers           | are added                           | are added; what all share, once    |
# | does not          | count as last heard of              | count as last heard of             |
# | has ended         | stay in the sum, as last heard of   | are forgotten                      |
#
# A sum of counters must never fall: Prometheus would take that for a restart, and count all of it
# a second time.

_SHARED = frozenset({vocabulary.SPILL_MESSAGES})
"""Gauges of what the processes have in common: each of them sees all of it."""
_GAUGE = "gauge"


@attrs.define
class Family:
    """One metric: what is said about it, and its series."""

    kind: str = "untyped"
    heading: list[str] = attrs.field(factory=list)
    samples: dict[str, int | float] = attrs.field(factory=dict)
    """By name and labels, as they are written."""


Families = Mapping[str, Family]


def parse(text: bytes) -> Families:
    """Read Prometheus' text format as we write it: no timestamps, no exemplars.

    A line that is neither heading nor number is left out: of foreign text, the rest counts.
    """
    families: dict[str, Family] = {}
    current = ""
    for line in text.decode("utf-8", "replace").split("\n"):
        if line.startswith("#"):
            current = _note_heading(families, line) or current
        elif line:
            _note_sample(families, line, current)
    return families


def _note_heading(families: dict[str, Family], line: str) -> str:
    """Return which metric it is about; nothing when it is a remark."""
    words = line.split(" ", 3)
    if len(words) < 4 or words[1] not in ("HELP", "TYPE"):
        return ""
    name = words[2]
    family = families.setdefault(name, Family())
    family.heading.append(line)
    if words[1] == "TYPE":
        family.kind = words[3]
    return name


def _note_sample(families: dict[str, Family], line: str, current: str) -> None:
    series, _, number = line.rpartition(" ")
    value = _number(number)
    if not series or value is None:
        return
    # A histogram's series have longer names than it; others without a heading have their own.
    is_ours = bool(current) and series.startswith(current)
    name = current if is_ours else series.partition("{")[0]
    families.setdefault(name, Family()).samples[series] = value


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def lasting(families: Families) -> Families:
    """What stays when the process has ended: everything but gauges."""
    return {name: each for name, each in families.items() if each.kind != _GAUGE}


def added_metrics(parts: Iterable[Families]) -> Families:
    """All of them together."""
    total: dict[str, Family] = {}
    for families in parts:
        for name, family in families.items():
            into = total.setdefault(name, Family(kind=family.kind, heading=list(family.heading)))
            for series, value in family.samples.items():
                into.samples[series] = _combined(name, into.samples.get(series), value)
    return total


def _combined(name: str, sum: int | float | None, value: int | float) -> int | float:
    if sum is None:
        return value
    return max(sum, value) if name in _SHARED else sum + value


def metrics_as_text(families: Families) -> bytes:
    """The format they were read from."""
    lines: list[str] = []
    for _, family in sorted(families.items()):
        lines += family.heading
        lines += [f"{series} {value!r}" for series, value in family.samples.items()]
    return "".join(f"{line}\n" for line in lines).encode()


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
