"""What is measured on real brokers: the clock, the catalogue, and the pump itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.brokers.catalogue import BROKER_CONTENDERS, BROKER_RATIOS
from benchmarks.brokers.rig import Tally
from benchmarks.catalogue import BY_NAME
from benchmarks.reading import Reading, Span
from benchmarks.rounds import Results
from benchmarks.tables import grids

ROOT = Path(__file__).resolve().parents[2]


def test_the_clock_runs_from_the_first_handled_message_to_the_last() -> None:
    spent_s = iter([1.0, 4.0])
    tally = Tally(3, lambda: next(spent_s))

    for _ in range(3):
        tally.add()
    tally.wait()

    reading = tally.reading()
    assert reading.messages == 2
    assert reading.spans["consume"].cpu_s == 3.0
    assert reading.spans["consume"].wall_s > 0


def test_when_a_message_comes_twice_then_nothing_is_measured() -> None:
    tally = Tally(1)
    tally.add()

    with pytest.raises(AssertionError, match="twice"):
        tally.add()


def test_every_contender_of_an_aim_is_measured() -> None:
    named = {name for _, _, *names in BROKER_RATIOS for name in names}

    assert named == {contender.name for contender in BROKER_CONTENDERS}


def test_when_brokers_were_measured_then_the_table_compares_within_a_broker() -> None:
    span = Span(wall_s=1.0, cpu_s=0.5)
    readings = {
        "nats-pump": [Reading(messages=400, spans={"consume": span})],
        "nats-faststream": [Reading(messages=100, spans={"consume": span})],
    }

    table, *_ = grids(Results(readings=readings, missing={}))

    assert table.title == "NATS JetStream: receive, handle, settle"
    assert [line[4] for line in table.lines] == ["1.00", "4.00"]


@pytest.mark.broker
@pytest.mark.parametrize("name", ["rabbitmq-pump", "nats-pump"])
def test_when_the_pump_is_measured_on_a_broker_then_every_message_was_settled(
    name: str, tmp_path: Path
) -> None:
    """The child itself looks whether anything is left in the queue."""
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", BY_NAME[name].name, "150"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )

    assert child.returncode == 0, child.stderr
    reading = Reading.from_json(json.loads(child.stdout.splitlines()[-1])["reading"])
    assert reading.messages == 149
