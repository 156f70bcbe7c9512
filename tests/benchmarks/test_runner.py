"""Contenders in processes of their own, from the catalogue to a reading."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import attrs
import pytest

from benchmarks.catalogue import BY_NAME, CONTENDERS
from benchmarks.contenders.brokers import HandledCounter
from benchmarks.contenders.pump import run_growth
from benchmarks.reading import ROOT, Reading, Span
from benchmarks.runner import measure, run_rounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.mark.parametrize("name", ["asyncio", "pump-local", "pump-sqs-lean", "watched-bare"])
def test_when_a_contender_is_measured_then_each_round_has_a_reading(name: str) -> None:
    """Nothing of ours is loaded in the process of another; the bare copy depends on it."""
    pytest.importorskip("aiohttp")
    pytest.importorskip("opentelemetry.sdk")
    contender = attrs.evolve(BY_NAME[name], share=1.0)

    results = run_rounds([contender], messages=150, repeat=2)

    assert [each.messages for each in results.readings[name]] == [150, 150]
    assert all(each.wall_s > 0 and each.cpu_s > 0 for each in results.readings[name])


def test_every_contender_names_a_function() -> None:
    """In a process of its own: a module that needs a library is loaded only where that is."""
    entries = {each.entry.partition(":")[::2] for each in CONTENDERS if "watched" not in each.entry}

    missing = [
        (module, function)
        for module, function in entries
        if not callable(getattr(import_module(f"benchmarks.{module}"), function, None))
    ]

    assert missing == []
    assert len(BY_NAME) == len(CONTENDERS)


def test_the_catalogue_loads_no_contender() -> None:
    """Else a contender's process would have the others' modules in its memory."""
    code = "import sys, benchmarks.runner; print([n for n in sys.modules if 'contenders' in n])"

    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout == "[]\n"


def test_when_a_library_is_not_installed_then_the_result_names_it() -> None:
    absent = attrs.evolve(BY_NAME["taskiq"], entry="no_such_module:run", needs="taskiq")

    assert measure(absent, 10)["missing"].startswith("taskiq (")


def test_when_pumphouse_itself_cannot_be_imported_then_it_is_no_missing_library() -> None:
    broken = attrs.evolve(BY_NAME["pump"], entry="no_such_module:run")

    with pytest.raises(ModuleNotFoundError):
        measure(broken, 10)


def test_a_reading_survives_the_pipe() -> None:
    sent = Reading(
        messages=3,
        spans={"a": Span(wall_s=1.0, cpu_s=0.5)},
        rss_mib=(1.0, 2.0),
        calls={"receivemessage": 2},
        figures={"start_s": 0.5},
    )

    assert Reading.from_json(sent.to_json()) == sent


def test_at_the_default_the_largest_series_are_what_the_aims_are_about() -> None:
    assert BY_NAME["growth-messages-10k"].messages(50_000) == 10_000
    assert BY_NAME["growth-messages-1m"].messages(50_000) == 1_000_000
    assert BY_NAME["pending-pump-local"].messages(50_000) == 1_000_000
    assert BY_NAME["report-spark"].messages(50_000) == 10_000_000


@pytest.mark.parametrize("in_flight", [1, 64])
def test_when_many_shall_be_in_flight_then_they_are(in_flight: int) -> None:
    reading = run_growth(300, concurrency=in_flight, is_held=True)

    assert reading.figures["peak_in_flight_count"] == in_flight


def test_on_a_broker_the_clock_runs_from_the_first_handled_message_to_the_last() -> None:
    spent_s = iter([1.0, 4.0])
    handled = HandledCounter(3, lambda: next(spent_s))

    for _ in range(3):
        handled.add()
    handled.wait()

    reading = handled.reading()
    assert reading.messages == 2
    assert reading.spans["consume"].cpu_s == 3.0
    assert reading.spans["consume"].wall_s > 0
    with pytest.raises(AssertionError, match="twice"):
        handled.add()
