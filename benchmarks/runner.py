"""Runner: rounds in which every contender runs in a process of its own, and what is kept of them.

A round is every contender once; then all of them again. Interleaved, so that whatever else the
machine does hits all of them alike. The child process is this module too, and prints one line:

    python -m benchmarks.runner taskiq 25000
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import attrs

from .catalogue import BY_NAME, Contender, Group
from .reading import ROOT, Reading, Results

WARM_UP = 0.05
"""Part of the messages that go through before the ones that count."""


def run_rounds(
    contenders: Sequence[Contender],
    *,
    messages: int,
    repeat: int,
    on_start: Callable[[int, Contender], None] = lambda _, __: None,
) -> Results:
    """Measure `repeat` rounds. Raises `CalledProcessError` when a contender breaks."""
    results = Results()
    for round_ in range(repeat):
        for contender in contenders:
            is_done = contender.max_rounds is not None and round_ >= contender.max_rounds
            if is_done or contender.name in results.missing:
                continue
            on_start(round_, contender)
            _run_child(contender, contender.messages(messages), results)
    return results


def _run_child(contender: Contender, count: int, results: Results) -> None:
    with tempfile.TemporaryDirectory(prefix="pumphouse-bench-") as folder:
        child = subprocess.run(
            [sys.executable, "-m", __name__, contender.name, str(count)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    if child.returncode:
        sys.stderr.write(child.stderr)
        child.check_returncode()
    line = json.loads(child.stdout)
    if "missing" in line:
        results.missing[contender.name] = line["missing"]
    else:
        readings = results.readings.setdefault(contender.name, [])
        readings.append(Reading.from_json(line["reading"]))


# In the child.


def measure(contender: Contender, count: int) -> dict[str, Any]:
    """Warm up, run, and return the reading, or what is missing to make one."""
    try:
        if not contender.warms_up_itself:
            contender.run(max(100, min(2000, round(count * WARM_UP))))
        return {"reading": contender.run(count).to_json()}
    except ImportError as error:
        if not contender.needs:
            raise
        return {"missing": f"{contender.needs} ({error})"}


def main(arguments: list[str]) -> None:
    """Measure `NAME COUNT`. Whatever else is printed meanwhile goes to stderr."""
    name, count = arguments
    with redirect_stdout(sys.stderr):
        result = measure(BY_NAME[name], int(count))
    print(json.dumps({"contender": name, **result}))


# What is kept: a file a group, so that groups can be measured on several days.


@attrs.frozen(kw_only=True)
class Measured:
    """One group's results, and when and where they were taken.

    Nothing of the machine but what the tables say.
    """

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


if __name__ == "__main__":
    main(sys.argv[1:])
