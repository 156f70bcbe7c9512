"""Place: a number among the processes of a run, and whoever has it."""

from __future__ import annotations

import asyncio

import attrs

from ..health.crew_report import ProcessReport, ProcessState
from ..health.wire import Answer, Request
from ..performer import STEADY_S
from .exit_codes import ExitCode
from .pump_process import PumpProcess

Renewal = asyncio.Future[bool]
"""Whether another process has taken the place; asked for by a rolling restart."""


@attrs.define(eq=False)
class Place:
    """Owned by the task that keeps a process in it."""

    number: int
    process: PumpProcess | None = None
    successor: PumpProcess | None = None
    """Starts, to take the place."""
    leaving: PumpProcess | None = None
    """Had the place, and drains."""
    restarts: int = 0
    failures: int = 0
    """Ends in a row, of processes that had not run for a while."""
    failing_since_s: float | None = None
    has_been_ready: bool = False
    left_with: ExitCode | None = None
    """Set when the place is to stay empty."""
    last_end: str | None = None
    told: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Wakes the task that waits for an end, or for the time to restart."""
    _renewal: Renewal | None = None
    _promised: Renewal | None = None
    """What is done once the process that has started in the empty place is ready."""

    @property
    def processes(self) -> list[PumpProcess]:
        """All that belong to it."""
        found = (self.process, self.successor, self.leaving)
        return [each for each in found if each is not None]

    @property
    def is_unused(self) -> bool:
        """Whether no process has ever been started in it."""
        return not self.processes and not self.failures

    # -- renewal ---------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Have the successor take the place. Ends are counted anew: those of others, long ago or
        by another version of the app, are not its own.
        """
        self.leaving, self.process, self.successor = self.process, self.successor, None
        self.failures, self.failing_since_s = 0, None

    @property
    def is_to_be_renewed(self) -> bool:
        """Whether another process is to take the place."""
        return self._renewal is not None

    async def ask_for_renewal(self) -> bool:
        """Have another process take the place, and return whether one has."""
        self._renewal = asyncio.get_running_loop().create_future()
        self.told.set()
        return await self._renewal

    def promise_renewal(self) -> Renewal | None:
        """What was asked for, to be settled by the caller; it counts as done here."""
        self._promised, self._renewal = self._renewal, None
        return self._promised

    def break_promise(self) -> None:
        """Tell whoever waits for a process to be ready, if anybody does, not to."""
        settle(self._promised, False)

    def settle_renewal(self, has_been_renewed: bool) -> None:
        """Tell whoever asked, if anybody did."""
        renewal, self._renewal = self._renewal, None
        settle(renewal, has_been_renewed)

    # -- what is known ---------------------------------------------------------------------------

    def members(self, now_s: float) -> list[SeenProcess]:
        """Whoever has the place, or nobody, and whoever leaves it."""
        found = [SeenProcess(self._report(now_s), self.process, self.successor)]
        if self.leaving is not None:
            leaver = ProcessReport(
                number=self.number, state=ProcessState.LEAVING, pid=self.leaving.pid
            )
            found.append(SeenProcess(leaver, self.leaving))
        return found

    def _report(self, now_s: float) -> ProcessReport:
        since_s = self.failing_since_s
        return ProcessReport(
            number=self.number,
            state=self._state(),
            pid=None if self.process is None else self.process.pid,
            restarts=self.restarts,
            failing_s=now_s - since_s if since_s is not None and self._is_failing() else None,
            last_end=self.last_end,
        )

    def _state(self) -> ProcessState:
        if self.process is None:
            if self.left_with is not None:
                return ProcessState.STOPPED
            return ProcessState.WAITING if self.failures else ProcessState.STARTING
        if self.process.has_ended:
            return ProcessState.STARTING  # Its successor does, and will have the place.
        if self.process.was_told:
            return ProcessState.LEAVING
        return ProcessState.RUNNING if self.process.is_ready else ProcessState.STARTING

    def _is_failing(self) -> bool:
        if self.process is None:
            return self.left_with is None
        return self.process.age_s <= STEADY_S


@attrs.frozen
class SeenProcess:
    """A member of the crew (`health.crew.Member`)."""

    _report: ProcessReport
    _process: PumpProcess | None
    _successor: PumpProcess | None = None

    def report(self) -> ProcessReport:
        """How it was a moment ago."""
        return self._report

    async def ask(self, request: Request) -> Answer | None:
        """Its answer, if anybody is there. What is to be changed is said to its successor too,
        whose letter may be older than that.
        """
        asked = [] if self._process is None else [self._process.ask(request)]
        if self._successor is not None and request.method == "POST":
            asked.append(self._successor.ask(request))
        answers = await asyncio.gather(*asked)
        return None if self._process is None else answers[0]


def settle(renewal: Renewal | None, has_been_renewed: bool) -> None:
    """Tell whoever waits for it."""
    if renewal is not None and not renewal.done():
        renewal.set_result(has_been_renewed)
