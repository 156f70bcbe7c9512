"""A supervisor whose processes are the test's: ready, and at an end, when the test says so."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog.testing

from pump.exit_codes import ExitCode
from pump.http.wire import Answer, Request
from pump.processes.ipc import DesiredStates
from pump.processes.merged_reports import ProcessState, ProcessTally
from pump.processes.supervisor import Supervisor
from pump.processes.worker_process import WorkerProcess
from pump.testing.virtual_clock import VirtualClock


class FakeProcess(WorkerProcess):
    """Ready when the test says so; told to end, it does, unless it hangs."""

    def __init__(self, number: int, pid: int, desired: DesiredStates, clock: VirtualClock) -> None:
        self.number, self.desired = number, dict(desired)
        self.is_ready = self.was_told = self.will_be_ready = self.hangs = False
        self.orders: list[str] = []
        self.requests: list[Request] = []
        self.tally = ProcessTally(counts={"work": {"processed": 1}})
        self._pid = pid
        self._clock = clock
        self._started_at_s = clock.now_s()
        self._ending = asyncio.get_running_loop().create_future()  # type: ignore[assignment]

    @property
    def pid(self) -> int:
        return self._pid

    async def looks_ready(self) -> bool:
        return self.will_be_ready

    async def ask(self, request: Request) -> Answer | None:
        self.requests.append(request)
        return Answer()

    def kill(self) -> None:
        self.end(-signal.SIGKILL)

    def end(self, code: int) -> None:
        self._ending.set_result(code)

    def _order(self, order: str) -> None:
        self.orders.append(order)
        if not self.hangs and not self.has_ended:
            self.end(0)


class Rig:
    """A supervisor, and every process it has started, in that order."""

    def __init__(self, count: int, *, until_empty: bool = False) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.started: list[FakeProcess] = []
        self.failure: OSError | None = None
        self.are_ready = True
        self.supervisor = Supervisor(self.start, count, self.clock, until_empty=until_empty)
        self.running: asyncio.Task[ExitCode] | None = None

    async def start(self, number: int, desired: DesiredStates) -> WorkerProcess:
        if self.failure is not None:
            raise self.failure
        made = FakeProcess(number, 100 + len(self.started), desired, self.clock)
        made.will_be_ready = self.are_ready
        self.started.append(made)
        return made

    @property
    def numbers(self) -> list[int]:
        return [each.number for each in self.started]

    @property
    def alive(self) -> list[int]:
        return sorted(each.number for each in self.started if not each.has_ended)

    def states(self) -> list[ProcessState]:
        return [each.report().state for each in self.supervisor.workers()]

    async def result(self) -> ExitCode:
        assert self.running is not None
        await self.clock.settle()
        return await self.running


@asynccontextmanager
async def supervised(rig: Rig) -> AsyncIterator[Rig]:
    with structlog.testing.capture_logs():
        rig.running = asyncio.create_task(rig.supervisor.run())
        await rig.clock.advance(1)
        yield rig
        for each in rig.started:
            each.hangs = False
        rig.supervisor.drain()
        await rig.clock.advance(1)
        for each in rig.started:
            if not each.has_ended:
                each.end(0)
        await rig.running
