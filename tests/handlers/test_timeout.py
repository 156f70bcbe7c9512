"""Timeout."""

from __future__ import annotations

import asyncio
import pickle
import threading
from datetime import timedelta
from typing import Any

import pytest

from handlers import Timeout
from pump.errors import ConfigurationError, HandlerTimeout
from pump.testing.virtual_clock import VirtualClock

from .support import SECOND, a_context, run


async def test_a_handler_that_takes_longer_is_cancelled_and_fails(clock: VirtualClock) -> None:
    cancelled = False

    async def handle(_: Any) -> None:
        nonlocal cancelled
        try:
            await clock.sleep(5)
        except asyncio.CancelledError:
            cancelled = True
            raise

    task = asyncio.create_task(run(handle, [Timeout(SECOND)], context=a_context(clock)))
    await clock.advance(1)

    with pytest.raises(HandlerTimeout) as caught:
        await task
    assert cancelled
    assert (caught.value.handler, caught.value.limit_s) == ("shop.Pay", 1.0)


async def test_a_handler_within_its_time_is_left_alone(clock: VirtualClock) -> None:
    async def handle(_: Any) -> str:
        await clock.sleep(0.9)
        return "done"

    task = asyncio.create_task(run(handle, [Timeout(SECOND)], context=a_context(clock)))
    await clock.advance(5)

    assert await task == "done"
    assert clock.next_due_in_s() is None


async def test_a_timeout_error_of_the_handlers_own_stays_its_own(clock: VirtualClock) -> None:
    async def handle(_: Any) -> None:
        async with clock.timeout(0.5):
            await clock.sleep(9)

    task = asyncio.create_task(run(handle, [Timeout(SECOND)], context=a_context(clock)))
    await clock.advance(5)

    with pytest.raises(TimeoutError):
        await task


async def test_a_cancellation_from_outside_wins_over_the_timeout(clock: VirtualClock) -> None:
    """Law 6: both at one moment."""

    async def handle(_: Any) -> None:
        try:
            await clock.sleep(9)
        except asyncio.CancelledError:
            task.cancel()
            raise

    task = asyncio.create_task(run(handle, [Timeout(SECOND)], context=a_context(clock)))
    await clock.advance(1)

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_after_a_timeout_the_task_can_go_on(clock: VirtualClock) -> None:
    async def handle(_: Any) -> None:
        await clock.sleep(9)

    async def whoever_called() -> int:
        with pytest.raises(HandlerTimeout):
            await run(handle, [Timeout(SECOND)], context=a_context(clock))
        await clock.sleep(1)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(whoever_called())
    await clock.advance(9)

    assert await task == 0


async def test_a_handler_that_finishes_in_spite_of_it_has_succeeded(clock: VirtualClock) -> None:
    async def handle(_: Any) -> str:
        try:
            await clock.sleep(9)
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    task = asyncio.create_task(run(handle, [Timeout(SECOND)], context=a_context(clock)))
    await clock.advance(1)

    assert await task == "done after all"


async def test_the_shorter_of_two_timeouts_speaks(clock: VirtualClock) -> None:
    async def handle(_: Any) -> None:
        await clock.sleep(99)

    task = asyncio.create_task(
        run(handle, [Timeout(SECOND * 5), Timeout(SECOND)], context=a_context(clock))
    )
    await clock.advance(9)

    with pytest.raises(HandlerTimeout) as caught:
        await task
    assert caught.value.limit_s == 1.0


async def test_a_blocking_handler_is_left_behind() -> None:
    clock = VirtualClock(thread_patience_s=0.0)
    go_on, ended = threading.Event(), threading.Event()

    def handle(_: Any) -> None:
        go_on.wait()
        ended.set()

    task = asyncio.create_task(run(handle, [Timeout(SECOND)], context=a_context(clock)))
    await clock.advance(1)

    with pytest.raises(HandlerTimeout):
        await task
    assert not ended.is_set()
    go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert ended.is_set()


@pytest.mark.parametrize("limit", [timedelta(0), timedelta(seconds=-1), 5, None])
def test_a_limit_that_cannot_work_is_refused(limit: Any) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match=r"Timeout\.limit"):
        Timeout(limit)


def test_it_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(Timeout(SECOND))) == Timeout(SECOND)
