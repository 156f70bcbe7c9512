"""Supervisor: keeps several processes of one app running, until it is told to end them.

The first one starts alone, and the others once it is ready: what is wrong with the app is said
once, and queues are made by one. `restart_policy.py` decides what follows when one ends.

A rolling restart takes one place after the other: another process starts, is ready, and takes the
place; only then is the old one drained, and once it has ended the next place's turn comes. So no
fewer processes than before are ready at any time, and never more than one is there in addition.
One that cannot start ends the restart, and the old ones go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import reduce
from typing import Any, Final

from ..clock import Clock
from ..exit_codes import ExitCode
from ..observability import vocabulary
from ..observability.log import get_logger
from .control import Worker
from .ipc import UNASKED, DesiredStates, Order
from .merged_reports import Counts, ProcessTally
from .metrics_sum import Families
from .restart_policy import (
    RESTART,
    EndRun,
    LeaveEmpty,
    ProcessEnd,
    Restart,
    failures_after,
    final_code,
    what_follows,
)
from .worker_process import WorkerProcess, WorkerSlot, settle

_log = get_logger("pump.supervisor")
_LOOK_EVERY_S: Final = 0.1
"""How often a process that starts is asked whether it is ready."""
Start = Callable[[int, DesiredStates], Awaitable[WorkerProcess]]
"""Starts a process of this number, with what was asked of subscriptions before."""


class Supervisor:
    """A crew (`health.crew.Crew`) that is kept complete."""

    def __init__(self, start: Start, count: int, clock: Clock, *, until_empty: bool) -> None:
        self._left_behind = ProcessTally()
        """What all that have ended had counted."""
        self._start_process = start
        self._clock = clock
        self._until_empty = until_empty
        self._places = [WorkerSlot(number) for number in range(1, count + 1)]
        self._standing: dict[str, Order] = {}
        self._first_has_started = asyncio.Event()
        self._restart_asked = asyncio.Event()
        self._is_draining = self._was_stopped = False
        self._verdict: ExitCode | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what it is told -------------------------------------------------------------------------

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def drain(self) -> None:
        """Have every process finish what it started, and end. Asking again changes nothing."""
        self._is_draining = True
        self._first_has_started.set()
        for place in self._places:
            place.told.set()
            for process in place.processes:
                process.drain()

    def stop_now(self) -> None:
        """Have every process hand back what it has, and end; asked again, kill it."""
        is_second_time, self._was_stopped = self._was_stopped, True
        self.drain()
        for place in self._places:
            for process in place.processes:
                if is_second_time:
                    process.kill()
                else:
                    process.stop()

    def restart(self) -> None:
        """Put another process in every place, one after the other.

        Asked again meanwhile, it begins anew: what starts may run an app that is old by now, or
        never be ready.
        """
        if self._is_draining:
            return
        self._restart_asked.set()
        for place in self._places:
            place.break_promise()
            if place.successor is not None:
                place.successor.drain()

    # -- what it says ----------------------------------------------------------------------------

    @property
    def tally(self) -> ProcessTally:
        """What was counted so far, by processes that have ended too."""
        living = [each.tally for place in self._places for each in place.processes]
        return reduce(ProcessTally.plus, living, self._left_behind)

    def counted(self) -> Counts:
        return self.tally.counts

    def measured(self) -> Families:
        return self.tally.metrics

    def order(self, subscription: str, order: Order | None = None) -> Order:
        if order is not None:
            self._standing[subscription] = order
        return self._standing.get(subscription, UNASKED)

    def members(self) -> Sequence[Worker]:
        return [member for place in self._places for member in place.members(self._clock.now_s())]

    # -- running ---------------------------------------------------------------------------------

    async def run(self) -> ExitCode:
        """Run until all have ended, whoever ended them, and return the exit code of the whole."""
        keeping = [self._spawn(self._keep(each), f"place {each.number}") for each in self._places]
        rolling = self._spawn(self._restart_when_asked(), "restart")
        try:
            await asyncio.gather(*keeping)
        finally:
            # A defect of ours must not leave processes without a supervisor that drains them.
            self.drain()
            rolling.cancel()
            await asyncio.wait(self._tasks | {rolling})
        codes = [each.left_with for each in self._places if each.left_with is not None]
        return self._verdict or final_code(codes, was_stopped=self._was_stopped)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep(self, place: WorkerSlot) -> None:
        """Have a process in the place, until it is to stay empty."""
        if place is not self._places[0]:
            await self._first_has_started.wait()
            if self._places[0].left_with is not None and not self._is_draining:
                self.drain()  # It ended before anybody was ready: there is nothing to do.
        while not self._is_draining:
            ended, ran_s = await self._run_one(place)
            match what_follows(ended, is_starting=self._is_starting, until_empty=self._until_empty):
                case Restart():
                    await self._back_off(place, ended, ran_s)
                case LeaveEmpty(exit_code):
                    place.left_with, place.last_end = exit_code, ended.how
                    break
                case EndRun(exit_code):
                    place.left_with = self._verdict = exit_code
                    self.drain()
        place.settle_renewal(False)
        self._first_has_started.set()

    async def _run_one(self, place: WorkerSlot) -> tuple[ProcessEnd, float]:
        """Run a process, and those that take its place, until the place is empty."""
        try:
            place.process = await self._start(place)
        except OSError as error:
            _log.error(vocabulary.PROCESS_DIED, process=place.number, error=str(error))
            place.settle_renewal(False)
            return ProcessEnd(code=ExitCode.UNEXPECTED), 0.0
        # What was asked for while the place was empty is done when this one is ready.
        waiting = self._await_ready(place, place.process, place.promise_renewal())
        self._spawn(waiting, f"ready {place.number}")
        while not place.process.has_ended:
            await self._wait(place)
            if place.is_to_be_renewed and not self._is_draining:
                await self._renew(place)
        ended, ran_s = await place.process.ended(), place.process.age_s
        self._bury(place.process, ended)
        place.process = None  # In the same breath: it is counted once.
        return ended, ran_s

    async def _start(self, place: WorkerSlot) -> WorkerProcess:
        process = await self._start_process(place.number, self._standing)
        _log.info(vocabulary.PROCESS_STARTED, process=place.number, pid=process.pid)
        if self._is_draining:
            process.drain()
        return process

    async def _wait(self, place: WorkerSlot) -> None:
        """Return when the place's process has ended, or another one is to take its place."""
        assert place.process is not None
        ending = asyncio.ensure_future(place.process.ended())
        telling = asyncio.ensure_future(place.told.wait())
        await asyncio.wait([ending, telling], return_when=asyncio.FIRST_COMPLETED)
        place.told.clear()
        for each in (ending, telling):
            each.cancel()

    async def _await_ready(
        self, place: WorkerSlot, process: WorkerProcess, renewal: asyncio.Future[bool] | None
    ) -> None:
        settle(renewal, await self._becomes_ready(place, process))

    async def _becomes_ready(self, place: WorkerSlot, process: WorkerProcess) -> bool:
        """Whether it was ready before it ended, or was told to."""
        while not await process.ended_within(_LOOK_EVERY_S):
            if await process.looks_ready() and not process.was_told:
                process.is_ready = place.has_been_ready = True
                self._first_has_started.set()
                _log.info(vocabulary.PROCESS_READY, process=process.number, pid=process.pid)
                return True
        return False

    @property
    def _is_starting(self) -> bool:
        return not all(each.has_been_ready for each in self._places)

    def _bury(self, process: WorkerProcess, ended: ProcessEnd) -> None:
        _log.info(
            vocabulary.PROCESS_ENDED,
            process=process.number,
            pid=process.pid,
            reason=ended.how,
            subscriptions=process.tally.counts,
        )
        self._left_behind = self._left_behind.plus(process.tally.lasting())

    async def _back_off(self, place: WorkerSlot, ended: ProcessEnd, ran_s: float) -> None:
        now_s = self._clock.now_s()
        place.last_end = ended.how
        place.failures = failures_after(place.failures, ran_s)
        if place.failures == 1:
            place.failing_since_s = now_s
        delay_s = RESTART.delay_s(place.failures, self._clock.chance())
        _log.error(
            vocabulary.PROCESS_DIED,
            process=place.number,
            reason=ended.how,
            retry_in_s=round(delay_s, 3),
        )
        place.restarts += 1
        try:
            async with self._clock.timeout(delay_s):
                await place.told.wait()
        except TimeoutError:
            return
        place.told.clear()

    # -- restarting ------------------------------------------------------------------------------

    async def _restart_when_asked(self) -> None:
        while True:
            await self._restart_asked.wait()
            self._restart_asked.clear()
            _log.info(vocabulary.RESTART_STARTED)
            if await self._restart_all():
                _log.info(vocabulary.RESTART_COMPLETED)
            elif not self._is_draining and not self._restart_asked.is_set():
                _log.error(
                    vocabulary.RESTART_ABANDONED,
                    remedy="the processes that were there go on; mend the app, and ask again",
                )

    async def _restart_all(self) -> bool:
        for place in self._places:
            if place.left_with is not None or place.is_unused:
                continue
            if not await place.ask_for_renewal():
                return False
            if place.leaving is not None:
                await place.leaving.ended()
        return not self._is_draining

    async def _renew(self, place: WorkerSlot) -> None:
        """Have another process take the place, unless it cannot."""
        try:
            place.successor = successor = await self._start(place)
        except OSError as error:
            _log.error(vocabulary.PROCESS_DIED, process=place.number, error=str(error))
            place.settle_renewal(False)
            return
        if not await self._becomes_ready(place, successor):
            ended = await successor.ended()
            self._bury(successor, ended)
            place.successor = None
            place.settle_renewal(False)
            return
        place.hand_over()
        self._spawn(self._see_off(place), f"leaving {place.number}")
        place.settle_renewal(True)

    async def _see_off(self, place: WorkerSlot) -> None:
        assert place.leaving is not None
        place.leaving.drain()
        ended = await place.leaving.ended()
        self._bury(place.leaving, ended)
        place.leaving = None
