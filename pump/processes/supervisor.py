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
from collections.abc import Awaitable, Callable, Sequence
from functools import reduce
from typing import Final

from ..clock import Clock
from ..exit_codes import ExitCode
from ..observability import vocabulary
from ..observability.log import get_logger
from ..tasks import BackgroundTasks
from .control import Worker
from .ipc import UNASKED, DesiredStates, Order
from .merged_reports import Counts, Families, ProcessTally
from .worker_process import (
    RESTART,
    EndRun,
    LeaveEmpty,
    ProcessEnd,
    Restart,
    WorkerProcess,
    WorkerSlot,
    failures_after,
    final_code,
    settle,
    what_follows,
)

_log = get_logger("pump.supervisor")
_LOOK_EVERY_S: Final = 0.1
"""How often a process that starts is asked whether it is ready."""
Start = Callable[[int, DesiredStates], Awaitable[WorkerProcess]]
"""Starts a process of this number, with what was asked of subscriptions before."""


class Supervisor:
    """A `WorkerGroup` that is kept complete."""

    def __init__(self, start: Start, count: int, clock: Clock, *, until_empty: bool) -> None:
        self._left_behind = ProcessTally()
        """What all that have ended had counted."""
        self._start_process = start
        self._clock = clock
        self._until_empty = until_empty
        self._slots = [WorkerSlot(number) for number in range(1, count + 1)]
        self._desired: dict[str, Order] = {}
        self._first_has_started = asyncio.Event()
        self._restart_asked = asyncio.Event()
        self._is_draining = self._was_stopped = False
        self._verdict: ExitCode | None = None
        self._tasks = BackgroundTasks("supervisor", is_awaited=False)

    # -- what it is told -------------------------------------------------------------------------

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def drain(self) -> None:
        """Have every process finish what it started, and end. Asking again changes nothing."""
        self._is_draining = True
        self._first_has_started.set()
        for slot in self._slots:
            slot.told.set()
            for process in slot.processes:
                process.drain()

    def stop_now(self) -> None:
        """Have every process hand back what it has, and end; asked again, kill it."""
        is_second_time, self._was_stopped = self._was_stopped, True
        self.drain()
        for slot in self._slots:
            for process in slot.processes:
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
        for slot in self._slots:
            slot.break_promise()
            if slot.successor is not None:
                slot.successor.drain()

    # -- what it says ----------------------------------------------------------------------------

    @property
    def tally(self) -> ProcessTally:
        """What was counted so far, by processes that have ended too."""
        living = [each.tally for slot in self._slots for each in slot.processes]
        return reduce(ProcessTally.plus, living, self._left_behind)

    def counted(self) -> Counts:
        return self.tally.counts

    def measured(self) -> Families:
        return self.tally.metrics

    def order(self, subscription: str, order: Order | None = None) -> Order:
        if order is not None:
            self._desired[subscription] = order
        return self._desired.get(subscription, UNASKED)

    def workers(self) -> Sequence[Worker]:
        return [worker for slot in self._slots for worker in slot.workers(self._clock.now_s())]

    # -- running ---------------------------------------------------------------------------------

    async def run(self) -> ExitCode:
        """Run until all have ended, for whatever reason, and return the exit code of the whole."""
        keeping = [
            self._tasks.start(self._keep(each), f"slot {each.number}") for each in self._slots
        ]
        rolling = self._tasks.start(self._restart_when_asked(), "restart")
        try:
            await asyncio.gather(*keeping)
        finally:
            # A defect of ours must not leave processes without a supervisor that drains them.
            self.drain()
            rolling.cancel()
            await self._tasks.finish_current()
        codes = [each.left_with for each in self._slots if each.left_with is not None]
        return self._verdict or final_code(codes, was_stopped=self._was_stopped)

    async def _keep(self, slot: WorkerSlot) -> None:
        """Have a process in the place, until it is to stay empty."""
        if slot is not self._slots[0]:
            await self._first_has_started.wait()
            if self._slots[0].left_with is not None and not self._is_draining:
                self.drain()  # It ended before any was ready: there is nothing to do.
        while not self._is_draining:
            ended, ran_s = await self._run_one(slot)
            match what_follows(ended, is_starting=self._is_starting, until_empty=self._until_empty):
                case Restart():
                    await self._back_off(slot, ended, ran_s)
                case LeaveEmpty(exit_code):
                    slot.left_with, slot.last_end = exit_code, ended.how
                    break
                case EndRun(exit_code):
                    slot.left_with = self._verdict = exit_code
                    self.drain()
        slot.settle_renewal(False)
        self._first_has_started.set()

    async def _run_one(self, slot: WorkerSlot) -> tuple[ProcessEnd, float]:
        """Run a process, and those that take its place, until the place is empty."""
        try:
            slot.process = await self._start(slot)
        except OSError as error:
            _log.error(vocabulary.PROCESS_DIED, process=slot.number, error=str(error))
            slot.settle_renewal(False)
            return ProcessEnd(code=ExitCode.UNEXPECTED), 0.0
        # What was asked for while the place was empty is done when this one is ready.
        waiting = self._await_ready(slot, slot.process, slot.promise_renewal())
        self._tasks.start(waiting, f"ready {slot.number}")
        while not slot.process.has_ended:
            await self._wait(slot)
            if slot.is_to_be_renewed and not self._is_draining:
                await self._renew(slot)
        ended, ran_s = await slot.process.ended(), slot.process.age_s
        self._record_end(slot.process, ended)
        slot.process = None  # With no await between: it is counted once.
        return ended, ran_s

    async def _start(self, slot: WorkerSlot) -> WorkerProcess:
        process = await self._start_process(slot.number, self._desired)
        _log.info(vocabulary.PROCESS_STARTED, process=slot.number, pid=process.pid)
        if self._is_draining:
            process.drain()
        return process

    async def _wait(self, slot: WorkerSlot) -> None:
        """Return when the place's process has ended, or another one is to take its place."""
        assert slot.process is not None
        ending = asyncio.ensure_future(slot.process.ended())
        telling = asyncio.ensure_future(slot.told.wait())
        await asyncio.wait([ending, telling], return_when=asyncio.FIRST_COMPLETED)
        slot.told.clear()
        for each in (ending, telling):
            each.cancel()

    async def _await_ready(
        self, slot: WorkerSlot, process: WorkerProcess, renewal: asyncio.Future[bool] | None
    ) -> None:
        settle(renewal, await self._becomes_ready(slot, process))

    async def _becomes_ready(self, slot: WorkerSlot, process: WorkerProcess) -> bool:
        """Whether it was ready before it ended, or was told to."""
        while not await process.ended_within(_LOOK_EVERY_S):
            if await process.looks_ready() and not process.was_told:
                process.is_ready = slot.has_been_ready = True
                self._first_has_started.set()
                _log.info(vocabulary.PROCESS_READY, process=process.number, pid=process.pid)
                return True
        return False

    @property
    def _is_starting(self) -> bool:
        return not all(each.has_been_ready for each in self._slots)

    def _record_end(self, process: WorkerProcess, ended: ProcessEnd) -> None:
        _log.info(
            vocabulary.PROCESS_ENDED,
            process=process.number,
            pid=process.pid,
            reason=ended.how,
            subscriptions=process.tally.counts,
        )
        self._left_behind = self._left_behind.plus(process.tally.lasting())

    async def _back_off(self, slot: WorkerSlot, ended: ProcessEnd, ran_s: float) -> None:
        now_s = self._clock.now_s()
        slot.last_end = ended.how
        slot.failures = failures_after(slot.failures, ran_s)
        if slot.failures == 1:
            slot.failing_since_s = now_s
        delay_s = RESTART.delay_s(slot.failures, self._clock.chance())
        _log.error(
            vocabulary.PROCESS_DIED,
            process=slot.number,
            reason=ended.how,
            retry_in_s=round(delay_s, 3),
        )
        slot.restarts += 1
        try:
            async with self._clock.timeout(delay_s):
                await slot.told.wait()
        except TimeoutError:
            return
        slot.told.clear()

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
        for slot in self._slots:
            if slot.left_with is not None or slot.is_unused:
                continue
            if not await slot.ask_for_renewal():
                return False
            if slot.leaving is not None:
                await slot.leaving.ended()
        return not self._is_draining

    async def _renew(self, slot: WorkerSlot) -> None:
        """Have another process take the place, unless it cannot."""
        try:
            slot.successor = successor = await self._start(slot)
        except OSError as error:
            _log.error(vocabulary.PROCESS_DIED, process=slot.number, error=str(error))
            slot.settle_renewal(False)
            return
        if not await self._becomes_ready(slot, successor):
            ended = await successor.ended()
            self._record_end(successor, ended)
            slot.successor = None
            slot.settle_renewal(False)
            return
        slot.hand_over()
        self._tasks.start(self._see_off(slot), f"leaving {slot.number}")
        slot.settle_renewal(True)

    async def _see_off(self, slot: WorkerSlot) -> None:
        assert slot.leaving is not None
        slot.leaving.drain()
        ended = await slot.leaving.ended()
        self._record_end(slot.leaving, ended)
        slot.leaving = None
