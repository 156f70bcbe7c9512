"""Restart policy: what follows the end of one worker, and of all. Pure.

| a process ended                                    | then                                      |
|----------------------------------------------------|-------------------------------------------|
| because it was told to                             | its place stays empty                     |
| by itself, its queues empty, with `--until-empty`  | its place stays empty                     |
| at its `unacceptable_limit`                        | its place stays empty: a person must look |
| with an error, before all had once been ready      | the run ends, with its exit code          |
| otherwise: a defect, a signal, out of memory       | it is restarted, with backoff             |
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from datetime import timedelta

import attrs

from ..backoff import Backoff
from ..exit_codes import ExitCode, most_urgent
from ..performer import STEADY_S

RESTART = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(minutes=1))


@attrs.frozen(kw_only=True)
class ProcessEnd:
    """How a process ended."""

    code: int
    """What it returned; minus the signal's number when one killed it."""
    was_told: bool = False
    was_ready: bool = False
    """Whether it had ever been."""

    @property
    def how(self) -> str:
        """In words."""
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"

    @property
    def exit_code(self) -> ExitCode:
        """As one of ours. What a SIGTERM ended that we sent had nothing in flight yet."""
        if self.was_told and self.code == -signal.SIGTERM:
            return ExitCode.OK
        return ExitCode(self.code) if self.code in set(ExitCode) else ExitCode.UNEXPECTED


@attrs.frozen
class Restart:
    """Another one takes its place."""


@attrs.frozen
class LeaveEmpty:
    """Its place stays empty."""

    exit_code: ExitCode


@attrs.frozen
class EndRun:
    """The others are drained, and this is the run's exit code."""

    exit_code: ExitCode


NextStep = Restart | LeaveEmpty | EndRun


def what_follows(ended: ProcessEnd, *, is_starting: bool, until_empty: bool) -> NextStep:
    """Decide; `is_starting` until each process has been ready once."""
    if ended.was_told:
        return LeaveEmpty(ended.exit_code)
    if until_empty and ended.code == ExitCode.OK:
        return LeaveEmpty(ExitCode.OK)
    if ended.code == ExitCode.UNACCEPTABLE:
        return LeaveEmpty(ExitCode.UNACCEPTABLE)
    if is_starting and not ended.was_ready and ended.code > 0:
        return EndRun(ended.exit_code)
    return Restart()


def failures_after(failures: int, ran_s: float) -> int:
    """How many ends in a row that makes, of processes that had not run for a while."""
    return 1 if ran_s > STEADY_S else failures + 1


def final_code(left: Iterable[ExitCode], *, was_stopped: bool) -> ExitCode:
    """The exit code of the run, from those of the processes that left."""
    bad = [code for code in left if code != ExitCode.OK]
    if was_stopped:
        return ExitCode.FORCED
    return most_urgent(bad) if bad else ExitCode.OK
