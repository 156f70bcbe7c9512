"""Sums: the metrics of several processes as if one had measured them. Pure.

| of a process that | its counters and histograms         | its gauges                         |
|-------------------|-------------------------------------|------------------------------------|
| answers           | are added                           | are added; what all share, once    |
| does not          | count as last heard of              | count as last heard of             |
| has ended         | stay in the sum, as last heard of   | are forgotten                      |

A sum of counters must never fall: Prometheus would take that for a restart, and count all of it
a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from ..observability import vocabulary

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


def added(parts: Iterable[Families]) -> Families:
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


def as_text(families: Families) -> bytes:
    """The format they were read from."""
    lines: list[str] = []
    for _, family in sorted(families.items()):
        lines += family.heading
        lines += [f"{series} {value!r}" for series, value in family.samples.items()]
    return "".join(f"{line}\n" for line in lines).encode()
