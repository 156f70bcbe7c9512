"""A rolling restart: one place after the other, whatever old and new processes do meanwhile."""

import signal

from pump.exit_codes import ExitCode
from pump.http.wire import Request
from pump.performer import STEADY_S
from pump.processes.control import ask_all
from pump.processes.merged_reports import ProcessState

from .supervised import Rig, supervised


async def test_a_restart_takes_one_place_after_the_other_and_waits_for_each_to_leave() -> None:
    rig = Rig(2)
    async with supervised(rig):
        first, second = rig.started
        first.hangs = True

        rig.supervisor.restart()
        await rig.clock.advance(1)
        assert rig.numbers == [1, 2, 1]
        assert first.orders == ["drain"]
        assert rig.states() == [ProcessState.RUNNING, ProcessState.LEAVING, ProcessState.RUNNING]

        first.end(0)
        await rig.clock.advance(1)
        assert rig.numbers == [1, 2, 1, 2]
        assert second.has_ended
        assert rig.alive == [1, 2]
        assert rig.supervisor.counted() == {"work": {"processed": 4}}


async def test_when_the_first_is_replaced_while_it_starts_then_the_others_still_start() -> None:
    rig = Rig(2)
    rig.are_ready = False
    async with supervised(rig):
        rig.supervisor.restart()
        await rig.clock.advance(1)
        assert rig.numbers == [1, 1]

        rig.are_ready = rig.started[1].will_be_ready = True
        await rig.clock.advance(1)

        assert rig.started[0].has_ended
        assert rig.alive == [1, 2]
        assert rig.states() == [ProcessState.RUNNING] * 2


async def test_when_a_new_process_cannot_start_then_the_old_ones_stay() -> None:
    rig = Rig(2)
    async with supervised(rig):
        rig.are_ready = False
        rig.supervisor.restart()
        await rig.clock.advance(1)
        rig.started[-1].end(ExitCode.CONFIGURATION)
        await rig.clock.advance(1)

        assert rig.numbers == [1, 2, 1]
        assert [each.orders for each in rig.started[:2]] == [[], []]
        assert rig.states() == [ProcessState.RUNNING] * 2


async def test_when_the_old_process_dies_while_its_successor_starts_then_that_one_succeeds() -> (
    None
):
    rig = Rig(1)
    async with supervised(rig):
        rig.are_ready = False
        rig.supervisor.restart()
        await rig.clock.advance(1)
        rig.started[0].end(-signal.SIGKILL)
        await rig.clock.advance(1)
        assert rig.states() == [ProcessState.STARTING]

        rig.started[1].will_be_ready = True
        await rig.clock.advance(1)

        assert rig.numbers == [1, 1]
        assert rig.states() == [ProcessState.RUNNING]


async def test_when_one_has_died_long_ago_then_a_restart_does_not_make_it_look_ill() -> None:
    rig = Rig(1)
    async with supervised(rig):
        rig.started[0].end(-signal.SIGKILL)
        await rig.clock.advance(10 * STEADY_S)

        rig.supervisor.restart()
        await rig.clock.advance(1)

        assert rig.numbers == [1, 1, 1]
        [worker] = rig.supervisor.workers()
        assert (worker.report().restarts, worker.report().failing_s) == (1, None)


async def test_when_a_new_process_is_never_ready_then_another_restart_replaces_it() -> None:
    rig = Rig(2)
    async with supervised(rig):
        rig.are_ready = False
        rig.supervisor.restart()
        await rig.clock.advance(3_600)
        assert rig.numbers == [1, 2, 1]

        rig.are_ready = True
        rig.supervisor.restart()
        await rig.clock.advance(1)

        assert rig.started[2].orders == ["drain"]
        assert rig.numbers == [1, 2, 1, 1, 2]
        assert [each.has_ended for each in rig.started] == [True, True, True, False, False]
        assert rig.states() == [ProcessState.RUNNING] * 2


async def test_when_asked_again_in_the_moment_in_which_it_is_ready_then_it_gets_no_place() -> None:
    rig = Rig(1)
    async with supervised(rig):
        rig.are_ready = False
        rig.supervisor.restart()
        await rig.clock.advance(1)
        first, successor = rig.started

        async def be_ready_too_late() -> bool:
            rig.supervisor.restart()
            return True

        successor.looks_ready = be_ready_too_late  # type: ignore[method-assign]
        rig.are_ready = True
        await rig.clock.advance(1)

        assert rig.numbers == [1, 1, 1]
        assert rig.alive == [1]
        assert rig.states() == [ProcessState.RUNNING]
        assert first.orders == ["drain"]


async def test_what_is_asked_while_a_successor_starts_is_said_to_it_as_well() -> None:
    rig = Rig(1)
    async with supervised(rig):
        rig.are_ready = False
        rig.supervisor.restart()
        await rig.clock.advance(1)
        pause = Request(method="POST", path=("subscriptions", "work", "pause"))
        look = Request(method="GET", path=("health",))

        for request in (pause, look):
            [(_, answer)] = await ask_all(rig.supervisor.workers(), request)
            assert answer is not None

        assert [each.requests for each in rig.started] == [[pause, look], [pause]]


async def test_a_restart_does_not_wait_for_the_time_of_one_that_died() -> None:
    rig = Rig(1)
    async with supervised(rig):
        for _ in range(4):
            rig.started[-1].end(1)
            await rig.clock.advance(4.5)
        rig.started[-1].end(1)
        await rig.clock.advance(0.1)
        count = len(rig.started)

        rig.supervisor.restart()
        await rig.clock.advance(1)

        assert len(rig.started) == count + 1


async def test_when_one_that_was_restarted_is_never_ready_then_another_restart_replaces_it() -> (
    None
):
    # given one that died, and whose successor, started for a restart too, is never ready
    rig = Rig(2)
    async with supervised(rig):
        rig.are_ready = False
        rig.started[0].end(1)
        await rig.clock.settle()
        rig.supervisor.restart()
        await rig.clock.advance(3_600)
        assert rig.numbers == [1, 2, 1]

        # when it is asked again, with an app that was mended
        rig.are_ready = True
        rig.supervisor.restart()
        await rig.clock.advance(1)

        # then every place has another process
        assert rig.numbers == [1, 2, 1, 1, 2]
        assert [each.has_ended for each in rig.started] == [True, True, True, False, False]
        assert rig.states() == [ProcessState.RUNNING] * 2


async def test_when_told_to_end_during_a_restart_then_old_and_new_end() -> None:
    rig = Rig(1)
    async with supervised(rig):
        rig.are_ready = False
        rig.supervisor.restart()
        await rig.clock.advance(1)

        rig.supervisor.drain()

        assert await rig.result() == ExitCode.OK
        assert [each.orders for each in rig.started] == [["drain"], ["drain"]]


async def test_one_that_died_before_it_was_told_to_end_does_not_spoil_the_exit_code() -> None:
    rig = Rig(1)
    async with supervised(rig):
        rig.are_ready = False
        rig.supervisor.restart()
        await rig.clock.advance(1)
        rig.started[0].end(-signal.SIGKILL)
        await rig.clock.advance(1)

        rig.supervisor.drain()

        assert await rig.result() == ExitCode.OK
        assert rig.numbers == [1, 1]
