"""What several processes say of themselves, as one verdict."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from pump.performer import DesiredState
from pump.processes.ipc import Order, as_json, from_json
from pump.processes.merged_reports import (
    ProcessReport,
    ProcessState,
    added,
    merged_subscriptions,
    why_not_live,
    why_not_ready,
)

COUNTED = {"orders": {"processed": 9}}


def subscription(**fields: Any) -> dict[str, Any]:
    return {
        "name": "orders",
        "queue": "orders",
        "state": "running",
        "asked": "run",
        "concurrency": 10,
        "in_hand": 2,
        "running": 1,
        "last_poll_age_s": 1.0,
        "unanswered_s": 0.0,
        "failed_polls": 0,
        "last_error": None,
        "counts": {"processed": 1},
        **fields,
    }


def process(number: int = 1, **fields: Any) -> ProcessReport:
    found = {"live": True, "ready": True, "reasons": [], "subscriptions": [subscription(**fields)]}
    return ProcessReport(number=number, state=ProcessState.RUNNING, pid=100 + number, found=found)


def merged(*reports: ProcessReport) -> dict[str, Any]:
    [only] = merged_subscriptions(reports, COUNTED)
    return only


def test_what_counts_is_added_and_of_polls_the_newest_is_told() -> None:
    found = merged(
        process(1, last_poll_age_s=5.0, unanswered_s=3.0),
        process(2, last_poll_age_s=None),
        process(3, last_poll_age_s=2.5, failed_polls=2, last_error="Throttled"),
    )

    assert (found["concurrency"], found["in_hand"], found["running"]) == (30, 6, 3)
    assert (found["last_poll_age_s"], found["unanswered_s"], found["failed_polls"]) == (2.5, 3.0, 2)
    assert found["last_error"] == "process 3: Throttled"
    assert found["counts"] == {"processed": 9}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("running", "running"), "running"),
        (("running", "failed"), "failed"),
        (("paused", "running"), "running"),
        (("paused", "paused"), "paused"),
        (("drained", "draining"), "draining"),
        (("stopped", "running"), "stopped"),
        (("novel", "novel"), "novel"),
    ],
)
def test_of_different_states_the_one_is_told_that_needs_a_person_first(
    states: tuple[str, str], state: str
) -> None:
    assert merged(*(process(state=each) for each in states))["state"] == state


def test_a_process_that_leaves_is_told_of_only_by_what_it_has_in_hand() -> None:
    leaver = attrs.evolve(process(1, state="draining"), state=ProcessState.LEAVING)

    found = merged(leaver, process(1))

    assert (found["state"], found["concurrency"], found["in_hand"]) == ("running", 10, 4)
    assert merged(leaver)["state"] == "draining"
    assert why_not_ready(attrs.evolve(leaver, found=None)) == []


def test_all_are_ready_when_each_says_so() -> None:
    assert why_not_ready(process()) == []

    broken = attrs.evolve(process(2), found={"reasons": ["orders: its pump broke"]})
    assert why_not_ready(broken) == ["process 2: orders: its pump broke"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (ProcessState.STARTING, "it has not started yet"),
        (ProcessState.RUNNING, "it does not answer"),
        (ProcessState.WAITING, "it ended (SIGKILL) and will be restarted"),
        (ProcessState.STOPPED, "it has stopped (SIGKILL)"),
    ],
)
def test_one_that_says_nothing_is_not_ready(state: ProcessState, why: str) -> None:
    report = ProcessReport(number=3, state=state, last_end="SIGKILL")

    assert why_not_ready(report) == [f"process 3: {why}"]


def test_only_silence_defects_and_endless_restarts_count_as_not_alive() -> None:
    def found(report: ProcessReport) -> list[str]:
        return why_not_live(report, max_failing_s=300)

    quiet = [ProcessReport(number=1, state=state) for state in ProcessState]
    answers = attrs.evolve(process(), found={"live": True, "reasons": []})
    stuck = attrs.evolve(process(), found={"live": False, "reasons": ["orders: stuck"]})
    failing = ProcessReport(number=1, state=ProcessState.WAITING, failing_s=301.0)

    assert [each.state for each in quiet if found(each)] == [ProcessState.RUNNING]
    assert found(answers) == []
    assert found(stuck) == ["process 1: orders: stuck"]
    assert found(failing) == ["process 1: it has been ending for 301 s"]
    assert found(attrs.evolve(failing, failing_s=299.0)) == []


def test_numbers_are_added_by_subscription_and_name() -> None:
    one = {"a": {"x": 1}, "b": {"x": 2}}
    other = {"b": {"x": 3, "y": 1}, "c": {}}

    assert added(one, other) == {"a": {"x": 1}, "b": {"x": 5, "y": 1}, "c": {}}


def test_standing_orders_are_what_a_performer_would_do_after_the_same_words() -> None:
    order = Order()
    for action, concurrency in [("pause", None), ("scale", 7), ("drain", None), ("pause", None)]:
        order = order.after(action, concurrency)

    assert order == Order(asked=DesiredState.DRAIN, concurrency=7)
    assert order.after("resume", None) == Order(asked=DesiredState.RUN, concurrency=7)
    assert from_json(as_json({"orders": order})) == {"orders": order}
