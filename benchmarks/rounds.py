"""Rounds: every contender once, in a process of its own, then all of them again.

Interleaved, so that whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from .contender import Contender
from .reading import Reading

_ROOT = Path(__file__).resolve().parent.parent


@attrs.define
class Results:
    """All readings by contender, one a round, and what could not be measured."""

    readings: dict[str, list[Reading]] = attrs.field(factory=dict)
    missing: dict[str, str] = attrs.field(factory=dict)


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
            _measure(contender, contender.messages(messages), results)
    return results


def _measure(contender: Contender, count: int, results: Results) -> None:
    with tempfile.TemporaryDirectory(prefix="pumphouse-bench-") as folder:
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.child", contender.name, str(count)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
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
