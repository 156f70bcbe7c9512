"""The supervisor with processes that the test ends, at times that the test decides."""

import signal

import pytest

from pump.cli.run import Starter
from pump.clock import Clock
from pump.exit_codes import ExitCode
from pump.performer import STEADY_S, DesiredState
from pump.processes.ipc import Order, RunOptions, WorkerStart
from pump.processes.merged_reports import ProcessState
from pump.processes.worker_process import WorkerProcess

from .supervised import Rig, supervised


async def test_the_others_start_once_the_first_is_ready() -> None:
    rig = Rig(3)
    rig.are_ready = False
    async with supervised(rig):
        assert rig.numbers == [1]
        assert rig.states() == [ProcessState.STARTING] * 3

        rig.are_ready = rig.started[0].will_be_ready = True
        await rig.clock.advance(1)

        assert rig.numbers == [1, 2, 3]
        assert rig.states() == [ProcessState.RUNNING] * 3


async def test_when_the_first_fails_then_no_other_is_started_and_its_code_is_the_runs() -> None:
    rig = Rig(3)
    rig.are_ready = False
    async with supervised(rig):
        rig.started[0].end(ExitCode.CONFIGURATION)

        assert await rig.result() == ExitCode.CONFIGURATION
        assert rig.numbers == [1]


async def test_when_a_later_one_fails_at_the_start_then_the_others_are_drained() -> None:
    rig = Rig(2)
    async with supervised(rig):
        pass
    rig = Rig(2)
    rig.are_ready = False
    async with supervised(rig):
        rig.started[0].will_be_ready = True
        await rig.clock.advance(1)
        rig.started[1].end(ExitCode.BROKER)

        assert await rig.result() == ExitCode.BROKER
        assert rig.started[0].orders == ["drain"]


async def test_one_that_dies_again_and_again_is_restarted_ever_later() -> None:
    rig = Rig(1)
    async with supervised(rig):
        for delay_s in (0.5, 1.0, 2.0, 4.0):
            count = len(rig.started)
            rig.started[-1].end(-signal.SIGKILL)
            await rig.clock.advance(delay_s - 0.01)
            assert len(rig.started) == count
            assert rig.states() == [ProcessState.WAITING]
            await rig.clock.advance(0.2)
            assert len(rig.started) == count + 1

        [worker] = rig.supervisor.workers()
        assert (worker.report().restarts, worker.report().last_end) == (4, "SIGKILL")
        assert worker.report().failing_s is not None
        await rig.clock.advance(STEADY_S)
        assert rig.supervisor.workers()[0].report().failing_s is None
        rig.started[-1].end(1)
        await rig.clock.advance(0.6)
        assert len(rig.started) == 6


async def test_when_the_machine_has_no_room_for_a_process_then_it_is_tried_again() -> None:
    rig = Rig(1)
    async with supervised(rig):
        rig.failure = OSError("Cannot allocate memory")
        rig.started[0].end(-signal.SIGKILL)
        await rig.clock.advance(60)
        assert rig.numbers == [1]

        rig.failure = None
        await rig.clock.advance(60)

        assert rig.numbers == [1, 1]


async def test_when_told_to_end_while_one_waits_for_its_restart_then_it_is_not_restarted() -> None:
    rig = Rig(2)
    async with supervised(rig):
        rig.started[0].end(-signal.SIGKILL)
        await rig.clock.advance(0.1)

        rig.supervisor.drain()

        assert await rig.result() == ExitCode.OK
        assert rig.numbers == [1, 2]


@pytest.mark.parametrize(("times", "orders"), [(1, ["drain", "stop"]), (2, ["drain", "stop"])])
async def test_to_stop_is_an_order_and_to_stop_again_a_kill(times: int, orders: list[str]) -> None:
    rig = Rig(1)
    async with supervised(rig):
        rig.started[0].hangs = True
        rig.supervisor.drain()
        for _ in range(times):
            rig.supervisor.stop_now()

        assert rig.started[0].orders == orders
        assert rig.started[0].has_ended is (times == 2)
        if times == 1:
            rig.started[0].end(130)
        assert await rig.result() == ExitCode.FORCED


async def test_with_until_empty_all_end_by_themselves_and_none_starts_too_late() -> None:
    rig = Rig(2, until_empty=True)
    rig.are_ready = False
    async with supervised(rig):
        rig.started[0].end(0)

        assert await rig.result() == ExitCode.OK
        assert rig.numbers == [1]


async def test_what_is_asked_while_a_process_is_being_made_is_in_its_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desired: dict[str, Order] = {}
    paused = Order(asked=DesiredState.PAUSE)
    letters: list[WorkerStart] = []

    async def start(letter: WorkerStart, clock: Clock) -> None:
        desired["work"] = paused
        letters.append(WorkerStart.of(letter.as_message()))

    monkeypatch.setattr(WorkerProcess, "start", start)
    await Starter(RunOptions(target="app:app")).start(1, desired)

    assert letters[0].desired == {"work": paused}


async def test_a_process_that_starts_later_is_told_what_was_asked_before() -> None:
    rig = Rig(1)
    async with supervised(rig):
        assert rig.started[0].desired == {}
        paused = Order(asked=DesiredState.PAUSE)
        rig.supervisor.order("work", paused)

        rig.started[0].end(1)
        await rig.clock.advance(1)

        assert rig.started[1].desired == {"work": paused}
