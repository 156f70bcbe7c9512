"""Worker process: one of several that run the same app, as its supervisor holds it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Final

import attrs

from ..backoff import Backoff
from ..clock import Clock
from ..exit_codes import ExitCode, most_urgent
from ..http.wire import Answer, Request
from ..performer import STEADY_S
from .ipc import (
    ATTACHED,
    DRAIN,
    ENDED,
    SERVING,
    STOP,
    IpcChannel,
    WorkerStart,
    answer_heard,
    request_said,
)
from .merged_reports import ProcessReport, ProcessState, ProcessTally

# Restart policy: what follows the end of one worker, and of all. Pure.
#
# | a process ended                                    | then                                      |
# |----------------------------------------------------|-------------------------------------------|
# | because it was told to                             | its place stays empty                     |
# | by itself, its queues empty, with `--until-empty`  | its place stays empty                     |
# | at its `unacceptable_limit`                        | its place stays empty: a person must look |
# | with an error, before all had once been ready      | the run ends, with its exit code          |
# | otherwise: a defect, a signal, out of memory       | it is restarted, with backoff             |

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


ANSWER_S: Final = 2.0
"""How long a process may take to answer: a probe itself waits a few seconds."""
_LAST_WORD_S: Final = 1.0
"""How long, after its end, what a process said may still be on its way."""


class WorkerProcess:
    """A process of its own session: Ctrl-C on a terminal reaches it through its supervisor, once.

    Orders go over the channel, not as signals: systemd signals every process of a unit, and a
    drain with a signal on top of that would be the second one, which stops.
    """

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, channel: IpcChannel, clock: Clock
    ) -> None:
        self.number = number
        self._started_at_s = clock.now_s()
        self.is_ready = False
        """Whether it has once been; set by the task that waits for it."""
        self.was_told = False
        self.tally = ProcessTally()
        """What it had counted when it was last heard of."""
        self._process = process
        self._channel = channel
        self._clock = clock
        self._is_attached = self._is_serving = self._has_said_all = False
        self._ids = count(1)
        self._asked: dict[int, asyncio.Future[Answer | None]] = {}
        self._ending = asyncio.create_task(self._see_through(), name=f"process {number}")

    @classmethod
    async def start(cls, worker_start: WorkerStart, clock: Clock) -> WorkerProcess:
        """Start one, and tell it what to run. `OSError` when the machine has no room for it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *boot_command("pump.cli.worker"),
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        channel = await IpcChannel.over(ours)
        channel.say(worker_start.as_message())
        return cls(worker_start.number, process, channel, clock)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def age_s(self) -> float:
        """How long ago it was started."""
        return self._clock.now_s() - self._started_at_s

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, and all that it said has been heard."""
        return self._ending.done()

    async def ended(self) -> ProcessEnd:
        """Return once it is gone; several may wait, and give it up."""
        code = await asyncio.shield(self._ending)
        return ProcessEnd(code=code, was_told=self.was_told, was_ready=self.is_ready)

    async def ended_within(self, delay_s: float) -> bool:
        """Whether it has gone by then; returns as soon as it has."""
        with suppress(TimeoutError):
            async with self._clock.timeout(delay_s):
                await self.ended()
        return self.has_ended

    def drain(self) -> None:
        """Have it finish what it started, and end. Asking again changes nothing."""
        if not self.was_told and not self.has_ended:
            self.was_told = True
            self._order(DRAIN)

    def stop(self) -> None:
        """Have it hand back what it has, and end."""
        self.was_told = True
        self._order(STOP)

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.returncode is None:
            self._process.kill()

    async def ask(self, request: Request) -> Answer | None:
        """Its answer; None when it cannot, or does not in time. See `Worker`."""
        if self.has_ended or (not self._is_serving and request.method != "POST"):
            return None
        id, answered = next(self._ids), asyncio.get_running_loop().create_future()
        self._channel.say(request_said(id, request))
        if not self._is_serving:
            return None
        self._asked[id] = answered
        try:
            async with self._clock.timeout(ANSWER_S):
                answer: Answer | None = await answered
        except TimeoutError:
            return None
        finally:
            self._asked.pop(id, None)
        self._keep(request, answer)
        return answer

    async def looks_ready(self) -> bool:
        """Whether it says that it is."""
        answer = await self.ask(Request(method="GET", path=("readyz",)))
        return answer is not None and answer.status == HTTPStatus.OK

    def _order(self, order: str) -> None:
        if self._is_attached:
            self._channel.say({"order": order})
        elif self._process.returncode is None:
            self._process.terminate()  # It has nothing in flight yet, and would not hear us.

    def _keep(self, request: Request, answer: Answer | None) -> None:
        """What is known is kept, for when it does not answer, or dies without a last word."""
        # A caller may see an answer after the last message, which came after it.
        if answer is None or answer.status != HTTPStatus.OK or self._has_said_all:
            return
        if request.path == ("metrics",):
            self.tally = self.tally.with_metrics(answer.body)
        else:
            self.tally = self.tally.with_document(answer.document())

    async def _see_through(self) -> int:
        listening = asyncio.create_task(self._listen(), name=f"ipc channel {self.number}")
        code = await self._process.wait()
        # Whatever it has forked may hold the other end open for ever.
        with suppress(TimeoutError):
            async with self._clock.timeout(_LAST_WORD_S):
                await asyncio.shield(listening)
        listening.cancel()
        self._channel.close()
        for answered in self._asked.values():
            if not answered.done():
                answered.set_result(None)
        return code

    async def _listen(self) -> None:
        while (said := await self._channel.hear()) is not None:
            match said:
                case {"event": event} if event == ATTACHED:
                    self._is_attached = True
                case {"event": event} if event == SERVING:
                    self._is_serving = True
                case {"event": event} if event == ENDED:
                    self.tally, self._has_said_all = ProcessTally.of(said), True
                case {"id": int(id)} if id in self._asked and not self._asked[id].done():
                    self._asked[id].set_result(answer_heard(said))


# Slot: a number among the workers of a run, and the processes in it.

Renewal = asyncio.Future[bool]
"""Whether another process has taken the place; asked for by a rolling restart."""


@attrs.define(eq=False)
class WorkerSlot:
    """Owned by the task that keeps a process in it."""

    number: int
    process: WorkerProcess | None = None
    successor: WorkerProcess | None = None
    """Starts, to take the place."""
    leaving: WorkerProcess | None = None
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
    def processes(self) -> list[WorkerProcess]:
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
        """Tell a task that waits for a process to be ready, if there is one, not to."""
        settle(self._promised, False)

    def settle_renewal(self, has_been_renewed: bool) -> None:
        """Tell the task that asked, if one did."""
        renewal, self._renewal = self._renewal, None
        settle(renewal, has_been_renewed)

    # -- what is known ---------------------------------------------------------------------------

    def workers(self, now_s: float) -> list[SeenProcess]:
        """The process that has the place, if any, and one that leaves it."""
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
    """A `Worker` as it was a moment ago."""

    _report: ProcessReport
    _process: WorkerProcess | None
    _successor: WorkerProcess | None = None

    def report(self) -> ProcessReport:
        """How it was a moment ago."""
        return self._report

    async def ask(self, request: Request) -> Answer | None:
        """Its answer, if a process is there. A change is sent to its successor too,
        whose `WorkerStart` may be older than that.
        """
        asked = [] if self._process is None else [self._process.ask(request)]
        if self._successor is not None and request.method == "POST":
            asked.append(self._successor.ask(request))
        answers = await asyncio.gather(*asked)
        return None if self._process is None else answers[0]


def settle(renewal: Renewal | None, has_been_renewed: bool) -> None:
    """Set the result for the tasks that wait for it."""
    if renewal is not None and not renewal.done():
        renewal.set_result(has_been_renewed)


# Boot command: the command line of a Python that runs a part of ours as a process of its own.

_ROOT = str(Path(__file__).resolve().parents[2])


def boot_command(module: str) -> tuple[str, ...]:
    """A command that calls `main` of the module.

    With -P and our folder last, a pump.py in the working folder is not taken for us.
    """
    program = f"import sys; sys.path.append({_ROOT!r}); from {module} import main; main()"
    return (sys.executable, "-P", "-c", program)
