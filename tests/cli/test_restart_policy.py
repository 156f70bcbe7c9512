"""What follows when one of several processes ends, and which exit code the whole has."""

import signal

import pytest

from pump.exit_codes import ExitCode
from pump.performer import STEADY_S
from pump.processes.worker_process import (
    EndRun,
    LeaveEmpty,
    NextStep,
    ProcessEnd,
    Restart,
    failures_after,
    final_code,
    what_follows,
)

TOLD = {"was_told": True, "was_ready": True}
READY = {"was_ready": True}


@pytest.mark.parametrize(
    ("ended", "follows"),
    [
        (ProcessEnd(code=0, **TOLD), LeaveEmpty(ExitCode.OK)),
        (ProcessEnd(code=-signal.SIGTERM, **TOLD), LeaveEmpty(ExitCode.OK)),
        (ProcessEnd(code=-signal.SIGKILL, **TOLD), LeaveEmpty(ExitCode.UNEXPECTED)),
        (ProcessEnd(code=130, **TOLD), LeaveEmpty(ExitCode.FORCED)),
        (ProcessEnd(code=5, **READY), LeaveEmpty(ExitCode.UNACCEPTABLE)),
        (ProcessEnd(code=0, **READY), Restart()),
        (ProcessEnd(code=1, **READY), Restart()),
        (ProcessEnd(code=3), Restart()),
        (ProcessEnd(code=-signal.SIGTERM, **READY), Restart()),
        (ProcessEnd(code=-signal.SIGKILL), Restart()),
    ],
)
def test_once_all_have_been_ready_only_those_leave_that_were_told_or_must_not_go_on(
    ended: ProcessEnd, follows: NextStep
) -> None:
    assert what_follows(ended, is_starting=False, until_empty=False) == follows


@pytest.mark.parametrize("code", [1, 3, 4])
def test_when_a_process_fails_at_the_start_then_the_run_ends_with_its_code(code: int) -> None:
    ended = ProcessEnd(code=code)

    assert what_follows(ended, is_starting=True, until_empty=False) == EndRun(ExitCode(code))


def test_when_a_stranger_s_exit_code_ends_the_start_then_it_counts_as_unexpected() -> None:
    ended = ProcessEnd(code=77)

    assert what_follows(ended, is_starting=True, until_empty=False) == EndRun(ExitCode.UNEXPECTED)


@pytest.mark.parametrize(
    "ended",
    [
        ProcessEnd(code=1, **READY),
        ProcessEnd(code=-signal.SIGKILL),
        ProcessEnd(code=-signal.SIGSEGV),
    ],
)
def test_when_a_process_dies_while_others_start_then_it_is_restarted(ended: ProcessEnd) -> None:
    assert what_follows(ended, is_starting=True, until_empty=False) == Restart()


def test_with_until_empty_a_process_that_has_nothing_to_do_leaves() -> None:
    ended = ProcessEnd(code=0, **READY)

    assert what_follows(ended, is_starting=True, until_empty=True) == LeaveEmpty(ExitCode.OK)


def test_ends_in_a_row_are_counted_anew_after_a_process_that_ran_for_a_while() -> None:
    assert failures_after(0, 1.0) == 1
    assert failures_after(3, 1.0) == 4
    assert failures_after(3, STEADY_S + 1) == 1


@pytest.mark.parametrize(
    ("left", "was_stopped", "code"),
    [
        ([0, 0], False, 0),
        ([], False, 0),
        ([0, 5, 0], False, 5),
        ([5, 1], False, 1),
        ([0, 130], True, 130),
        ([1, 0], True, 130),
    ],
)
def test_the_exit_code_of_the_run_is_the_one_that_needs_a_person_most(
    left: list[int], was_stopped: bool, code: int
) -> None:
    codes = [ExitCode(each) for each in left]

    assert final_code(codes, was_stopped=was_stopped) == code


def test_how_a_process_ended_is_told_in_words() -> None:
    assert ProcessEnd(code=3).how == "exit code 3"
    assert ProcessEnd(code=-9).how == "SIGKILL"
    assert ProcessEnd(code=-250).how == "signal 250"
