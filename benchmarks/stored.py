"""Stored: what was measured of each group, in a file of its own beside README.md.

So groups can be measured one after the other, on several days, and the tables still show all of
them, each with its date. A file holds figures and names of contenders, nothing else of the machine
than what the tables say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from .catalogue import BY_NAME
from .contender import Group
from .reading import Reading
from .rounds import Results


@attrs.frozen(kw_only=True)
class Measured:
    """One group's results, and when and where they were taken."""

    group: Group
    on: str
    """The date."""
    machine: str
    load: float | None
    """The load average over five minutes at the end, where the system says it."""
    took_s: float
    results: Results

    @property
    def said(self) -> str:
        """The line above its tables."""
        load = "" if self.load is None else f", load {self.load:.1f}"
        rounds = max((len(each) for each in self.results.readings.values()), default=0)
        ways = f"medians of {rounds} interleaved rounds" if rounds > 1 else "one round"
        return f"Measured on {self.on}: {self.machine}{load}; {ways}, {self.took_s:,.0f} s in all."

    def to_json(self) -> dict[str, Any]:
        """Plain values. Of what is missing only the names: an import error may say a path."""
        return {
            "on": self.on,
            "machine": self.machine,
            "load": self.load,
            "took_s": self.took_s,
            "readings": {
                name: [reading.to_json() for reading in readings]
                for name, readings in self.results.readings.items()
            },
            "missing": [*self.results.missing],
        }

    @classmethod
    def from_json(cls, group: Group, values: Mapping[str, Any]) -> Measured:
        """What `to_json` wrote, as far as it is about contenders that there still are."""
        results = Results(
            readings={
                name: [Reading.from_json(reading) for reading in readings]
                for name, readings in values["readings"].items()
                if name in BY_NAME
            },
            missing={name: BY_NAME[name].needs for name in values["missing"] if name in BY_NAME},
        )
        return cls(
            group=group,
            on=values["on"],
            machine=values["machine"],
            load=values["load"],
            took_s=values["took_s"],
            results=results,
        )


def save(measured: Measured, folder: Path) -> None:
    """Put a group's results in the place of those it had."""
    folder.mkdir(exist_ok=True)
    text = json.dumps(measured.to_json(), indent=1)
    _file_of(measured.group, folder).write_text(f"{text}\n")


def load_all(folder: Path) -> list[Measured]:
    """Every group that was ever saved, in the order of the groups."""
    return [
        Measured.from_json(group, json.loads(_file_of(group, folder).read_text()))
        for group in Group
        if _file_of(group, folder).exists()
    ]


def merged(groups: Iterable[Measured]) -> Results:
    """The results of several groups as one; a contender is in one group only."""
    results = Results()
    for each in groups:
        results.readings |= each.results.readings
        results.missing |= each.results.missing
    return results


def _file_of(group: Group, folder: Path) -> Path:
    return folder / f"{group.key}.json"
