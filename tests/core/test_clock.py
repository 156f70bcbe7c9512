"""Clock: a timeout that is ours, and a cancellation that is not (law 6)."""

from __future__ import annotations

import asyncio

import pytest

from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.testing.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_when_the_body_is_slower_than_its_timeout_then_that_is_a_timeout_error(
    clock: VirtualClock,
) -> None:
    async def body() -> None:
        async with clock.timeout(5):
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await clock.advance(4.9)
    assert not task.done()
    await clock.advance(0.1)

    assert isinstance(task.exception(), TimeoutError)


async def test_when_the_body_is_in_time_then_nothing_happens(clock: VirtualClock) -> None:
    async with clock.timeout(5):
        await yield_to_loop()

    await clock.advance(10)
    assert clock.next_due_in_s() is None


async def test_when_there_is_no_limit_then_the_body_may_take_for_ever(clock: VirtualClock) -> None:
    async def body() -> str:
        async with clock.timeout(None):
            await clock.sleep(1_000_000)
        return "done"

    task = asyncio.create_task(body())
    await clock.advance(1_000_000)

    assert await task == "done"


async def test_when_cancelled_from_outside_at_the_same_moment_then_the_cancellation_wins(
    clock: VirtualClock,
) -> None:
    """Law 6."""

    async def body() -> None:
        async with clock.timeout(5):
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await clock.settle()
    clock.call_later(5, task.cancel)

    await clock.advance(5)

    assert task.cancelled()


async def test_when_cancelled_from_outside_then_that_is_no_timeout(clock: VirtualClock) -> None:
    """Law 6."""

    async def body() -> None:
        async with clock.timeout(5):
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await clock.settle()

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()


async def test_when_the_body_fails_then_its_own_error_is_raised(clock: VirtualClock) -> None:
    with pytest.raises(LookupError):
        async with clock.timeout(5):
            raise LookupError


async def test_when_a_task_timed_out_then_it_can_be_cancelled_afresh(clock: VirtualClock) -> None:
    counts: list[int] = []

    async def body() -> None:
        for _ in range(3):
            try:
                async with clock.timeout(1):
                    await asyncio.Event().wait()
            except TimeoutError:
                task = asyncio.current_task()
                assert task is not None
                counts.append(task.cancelling())

    running = asyncio.create_task(body())
    await clock.advance(3)
    await running

    assert counts == [0, 0, 0]


async def test_when_timeouts_are_nested_then_the_inner_one_is_the_inner_ones(
    clock: VirtualClock,
) -> None:
    async def body() -> str:
        async with clock.timeout(10):
            try:
                async with clock.timeout(1):
                    await asyncio.Event().wait()
            except TimeoutError:
                await clock.sleep(5)
                return "inner"
        return "none"

    task = asyncio.create_task(body())
    await clock.advance(10)

    assert await task == "inner"


async def test_when_a_sleep_is_cancelled_then_its_timer_is_too(clock: VirtualClock) -> None:
    task = asyncio.create_task(clock.sleep(100))
    await clock.settle()
    task.cancel()
    await asyncio.wait([task])

    assert clock.next_due_in_s() is None


async def test_when_the_machines_clock_is_used_then_it_sleeps_and_times_out_too() -> None:
    started_s, unix_s = SYSTEM_CLOCK.now_s(), SYSTEM_CLOCK.time_s()

    await SYSTEM_CLOCK.sleep(0.01)
    await SYSTEM_CLOCK.sleep(0)
    with pytest.raises(TimeoutError):
        async with SYSTEM_CLOCK.timeout(0.01):
            await asyncio.Event().wait()

    assert SYSTEM_CLOCK.now_s() - started_s >= 0.015
    assert SYSTEM_CLOCK.time_s() > unix_s > 1_700_000_000
    assert 0 <= SYSTEM_CLOCK.chance() < 1
