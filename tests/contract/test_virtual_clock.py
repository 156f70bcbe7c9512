"""The virtual clock: time passes in order, and only once everybody has come to rest."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite
import pytest

from pump.clock import yield_to_loop
from pump.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_when_nobody_moves_it_then_time_stands_still(clock: VirtualClock) -> None:
    before = (clock.now_s(), clock.time_s())

    await clock.settle()

    assert (clock.now_s(), clock.time_s()) == before == (1_000.0, 1_750_000_000.0)


async def test_when_time_passes_then_each_sleeper_wakes_at_its_moment(clock: VirtualClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, *naps_s: float) -> None:
        for nap_s in naps_s:
            await clock.sleep(nap_s)
            woken.append((name, clock.now_s() - 1_000.0))

    tasks = [asyncio.create_task(sleep("a", 5, 5)), asyncio.create_task(sleep("b", 3, 3, 3))]
    await clock.advance(10)

    assert woken == [("b", 3), ("a", 5), ("b", 6), ("b", 9), ("a", 10)]
    await asyncio.gather(*tasks)


async def test_when_timers_share_a_moment_then_they_fire_in_the_order_they_were_set(
    clock: VirtualClock,
) -> None:
    fired: list[int] = []
    for number in range(5):
        clock.call_later(1.0, lambda number=number: fired.append(number))  # type: ignore[misc]

    await clock.advance(1)

    assert fired == [0, 1, 2, 3, 4]


async def test_when_a_timer_is_cancelled_then_it_does_not_fire(clock: VirtualClock) -> None:
    fired: list[str] = []
    timer = clock.call_later(1.0, lambda: fired.append("timer"))
    clock.call_later(1.0, timer.cancel)
    clock.call_later(2.0, lambda: fired.append("other")).cancel()

    timer.cancel()
    await clock.advance(5)

    assert fired == []
    assert clock.next_due_in_s() is None


async def test_when_there_is_no_delay_then_a_callback_runs_without_an_advance(
    clock: VirtualClock,
) -> None:
    fired: list[str] = []

    clock.call_later(0.0, lambda: fired.append("now"))
    await clock.settle()

    assert fired == ["now"]


async def test_when_the_deadline_passes_then_the_body_times_out(clock: VirtualClock) -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with clock.timeout(7):
                await asyncio.Event().wait()
        return clock.now_s()

    waiting = asyncio.create_task(wait())
    await clock.advance(30)

    assert await waiting == 1_007.0


async def test_when_moved_to_the_next_timer_then_exactly_so_far(clock: VirtualClock) -> None:
    clock.call_later(42.0, lambda: None)

    moved = [await clock.advance_to_next(), await clock.advance_to_next()]

    assert moved == [True, False]
    assert clock.now_s() == 1_042.0


async def test_when_tasks_hand_on_to_one_another_then_settle_waits_for_the_last(
    clock: VirtualClock,
) -> None:
    queues: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(50)]

    async def relay(source: asyncio.Queue[int], target: asyncio.Queue[int]) -> None:
        target.put_nowait(await source.get() + 1)

    relays = [asyncio.create_task(relay(*pair)) for pair in itertools.pairwise(queues)]
    queues[0].put_nowait(0)
    await clock.settle()

    assert queues[-1].get_nowait() == 49
    await asyncio.gather(*relays)


async def in_the_default_executor(work: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


async def within_a_shield(work: Callable[[], object]) -> None:
    await asyncio.shield(asyncio.wait_for(asyncio.to_thread(work), 10))


def started(work: Callable[[], object]) -> asyncio.Future[object]:
    return asyncio.get_running_loop().run_in_executor(None, work)


async def behind_a_shield(work: Callable[[], object]) -> None:
    await asyncio.shield(started(work))


async def by_waiting(work: Callable[[], object]) -> None:
    await asyncio.wait([started(work)])


async def gathered(work: Callable[[], object]) -> None:
    await asyncio.gather(started(work), started(work))


async def told_by_a_callback(work: Callable[[], object]) -> None:
    done = asyncio.Event()
    started(work).add_done_callback(lambda _: done.set())
    await done.wait()


async def of_another_task(work: Callable[[], object]) -> None:
    await asyncio.shield(asyncio.create_task(behind_a_shield(work)))


@pytest.mark.parametrize(
    "run",
    [
        asyncio.to_thread,
        in_the_default_executor,
        within_a_shield,
        behind_a_shield,
        by_waiting,
        gathered,
        told_by_a_callback,
        of_another_task,
    ],
)
async def test_when_a_task_waits_for_a_thread_then_time_does_not_overtake_it(
    clock: VirtualClock, run: Callable[[Callable[[], object]], Awaitable[None]]
) -> None:
    async def work() -> float:
        await run(lambda: threading.Event().wait(0.03))
        return clock.now_s()

    working = asyncio.create_task(work())
    await clock.advance(60)

    assert await working == 1_000.0


async def test_when_a_task_writes_with_aiosqlite_then_time_does_not_overtake_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async def write() -> float:
        async with aiosqlite.connect(tmp_path / "clock.db") as database:
            await database.execute("CREATE TABLE ticks (number)")
            for number in range(20):
                await database.execute("INSERT INTO ticks VALUES (?)", (number,))
                await database.commit()
            return clock.now_s()

    writing = asyncio.create_task(write())
    await clock.advance(60)

    assert await writing == 1_000.0


async def test_when_a_thread_never_ends_then_time_goes_on_after_its_patience() -> None:
    clock = VirtualClock(thread_patience_s=0.02)
    release = threading.Event()
    working = asyncio.create_task(asyncio.to_thread(release.wait))

    await clock.advance(60)

    assert not working.done()
    release.set()
    await working


async def test_when_a_thread_has_exhausted_its_patience_then_it_is_not_waited_for_again() -> None:
    clock = VirtualClock(thread_patience_s=0.02)
    release = threading.Event()
    shielded = asyncio.shield(started(release.wait))
    await clock.settle()

    patient = VirtualClock(thread_patience_s=60)
    patient._given_up.update(clock._given_up)
    await patient.advance(60)

    release.set()
    await shielded


async def test_when_the_machine_is_started_again_then_now_begins_anew_and_the_date_goes_on(
    clock: VirtualClock,
) -> None:
    await clock.advance(100)
    fired: list[float] = []
    clock.call_later(10, lambda: fired.append(clock.now_s()))
    at_s = clock.time_s()

    clock.reboot()

    assert (clock.now_s(), clock.time_s()) == (500.0, at_s)
    await clock.advance(10)
    assert fired == [510.0]


async def test_when_a_task_never_rests_then_the_error_names_it() -> None:
    clock = VirtualClock(max_rounds=100)

    async def spin() -> None:
        while True:
            await yield_to_loop()

    spinning = asyncio.create_task(spin(), name="spinner")
    with pytest.raises(RuntimeError, match="spinner"):
        await clock.settle()

    spinning.cancel()


async def test_when_two_tasks_move_the_clock_then_neither_waits_for_the_other(
    clock: VirtualClock,
) -> None:
    inner = asyncio.create_task(clock.advance(5))

    await clock.advance(3)
    await inner

    assert clock.now_s() == 1_005.0


async def test_when_chance_is_set_then_it_stays(clock: VirtualClock) -> None:
    drawn = [clock.chance(), clock.chance()]

    clock.set_chance(0.9)

    assert drawn == [0.5, 0.5]
    assert clock.chance() == 0.9


async def test_when_asked_to_go_back_then_it_refuses(clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="backwards"):
        await clock.advance(-1)
