"""Retry in place."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from handlers import Retry, Timeout
from pump.backoff import Backoff
from pump.errors import ConfigurationError, HandlerTimeout
from pump.outcome import RejectMessage
from pump.testing.virtual_clock import VirtualClock

from .support import SECOND, a_context, run

FLAT = Backoff(initial=SECOND, factor=1.0, maximum=SECOND, jitter=0.0)


class Failing:
    """A handler that fails a number of times, then returns how often it was called."""

    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.times = times
        self.error = error or ValueError("not yet")
        self.calls = 0

    async def handle(self, _: Any) -> int:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return self.calls


async def test_a_handler_that_fails_twice_succeeds_at_the_third_try(clock: VirtualClock) -> None:
    handler = Failing(2)

    task = asyncio.create_task(run(handler, [Retry(3, backoff=FLAT)], context=a_context(clock)))
    await clock.advance(2)

    assert await task == 3


async def test_the_last_error_gets_out_once_the_tries_are_used_up(clock: VirtualClock) -> None:
    handler = Failing(9)

    task = asyncio.create_task(run(handler, [Retry(3, backoff=FLAT)], context=a_context(clock)))
    await clock.advance(60)

    with pytest.raises(ValueError, match="not yet"):
        await task
    assert handler.calls == 3


async def test_between_tries_it_waits_as_long_as_the_backoff_says(clock: VirtualClock) -> None:
    handler = Failing(2)
    backoff = Backoff(initial=SECOND, factor=10.0, jitter=0.0)

    task = asyncio.create_task(run(handler, [Retry(3, backoff=backoff)], context=a_context(clock)))
    calls = []
    for seconds in (0.9, 0.2, 9.7, 0.3):
        await clock.advance(seconds)
        calls.append(handler.calls)

    assert calls == [1, 2, 2, 3]
    await task


async def test_an_error_that_is_not_named_is_not_retried() -> None:
    handler = Failing(1, KeyError("x"))

    with pytest.raises(KeyError):
        await run(handler, [Retry(3, on=(ValueError, OSError))])

    assert handler.calls == 1


async def test_one_error_class_may_be_named_alone() -> None:
    assert Retry(on=OSError).on == (OSError,)


async def test_a_signal_after_a_failure_ends_the_tries(clock: VirtualClock) -> None:
    """Law 8."""
    calls = 0

    async def handle(_: Any) -> None:
        nonlocal calls
        calls += 1
        raise ValueError if calls == 1 else RejectMessage("give up")

    task = asyncio.create_task(run(handle, [Retry(9, backoff=FLAT)], context=a_context(clock)))
    await clock.advance(60)

    with pytest.raises(RejectMessage):
        await task
    assert calls == 2


async def test_a_cancellation_while_it_waits_ends_it(clock: VirtualClock) -> None:
    """Law 6."""
    handler = Failing(9)
    task = asyncio.create_task(run(handler, [Retry(3, backoff=FLAT)], context=a_context(clock)))
    await clock.settle()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert handler.calls == 1


async def test_a_timeout_inside_is_retried_and_each_try_has_the_whole_time(
    clock: VirtualClock,
) -> None:
    calls = 0

    async def handle(_: Any) -> str:
        nonlocal calls
        calls += 1
        await clock.sleep(5 if calls == 1 else 0.5)
        return "done"

    task = asyncio.create_task(
        run(handle, [Retry(2, backoff=FLAT), Timeout(SECOND)], context=a_context(clock))
    )
    await clock.advance(3)

    assert await task == "done"


async def test_a_timeout_outside_bounds_all_the_tries_together(clock: VirtualClock) -> None:
    task = asyncio.create_task(
        run(Failing(99), [Timeout(SECOND * 3), Retry(99, backoff=FLAT)], context=a_context(clock))
    )
    await clock.advance(3)

    with pytest.raises(HandlerTimeout):
        await task


@given(failures=st.integers(0, 6), max_attempts=st.integers(1, 6))
def test_it_calls_the_handler_no_more_than_needed_and_than_allowed(
    failures: int, max_attempts: int
) -> None:
    handler = Failing(failures)
    now = Backoff(initial=timedelta(0), maximum=timedelta(0))

    async def once() -> bool:
        try:
            await run(handler, [Retry(max_attempts, backoff=now)])
        except ValueError:
            return False
        return True

    assert asyncio.run(once()) is (failures < max_attempts)
    assert handler.calls == min(failures + 1, max_attempts)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"max_attempts": 0}, "Retry.max_attempts"),
        ({"max_attempts": True}, "Retry.max_attempts"),
        ({"max_attempts": 2.5}, "Retry.max_attempts"),
        ({"backoff": timedelta(1)}, "Retry.backoff"),
        ({"on": ()}, "Retry.on"),
        ({"on": (BaseException,)}, "Retry.on"),
        ({"on": asyncio.CancelledError}, "Retry.on"),
        ({"on": (RejectMessage,)}, "Retry.on"),
        ({"on": ("ValueError",)}, "Retry.on"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], field: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        Retry(**settings)

    assert caught.value.field == field


def test_it_survives_pickling() -> None:
    retry = Retry(5, backoff=FLAT, on=(OSError,))

    assert pickle.loads(pickle.dumps(retry)) == retry
