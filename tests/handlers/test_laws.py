"""Laws 6 and 8, for every middleware alone and inside a careless one of the application's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from pump.clock import yield_to_loop
from pump.context import Context
from pump.errors import LeaseLost
from pump.outcome import DeferMessage, InvalidMessage, RejectMessage, Signal
from pump.pipeline import Middleware, Proceed

from .support import (
    EVERY_MIDDLEWARE,
    raising,
    replace_every_error,
    run,
    swallow_everything,
)

SIGNALS = [DeferMessage(timedelta(seconds=9)), RejectMessage("no"), InvalidMessage("what")]
every_signal = pytest.mark.parametrize("signal", SIGNALS, ids=lambda each: type(each).__name__)
every_middleware = pytest.mark.parametrize(
    "make", EVERY_MIDDLEWARE.values(), ids=EVERY_MIDDLEWARE.keys()
)
Make = Callable[[], Middleware]


@pytest.fixture(autouse=True)
def _no_rendering() -> Iterator[None]:
    # To render a traceback reads source files, and the tests' loop is watched for blocking calls.
    with capture_logs():
        yield


@every_signal
@every_middleware
async def test_law_8_a_signal_gets_out_of_every_middleware(make: Make, signal: Signal) -> None:
    """R35."""
    with pytest.raises(type(signal)) as caught:
        await run(raising(signal), [make()])

    assert caught.value is signal


@every_signal
@pytest.mark.parametrize("careless", [swallow_everything, replace_every_error])
@pytest.mark.parametrize("order", ["outside", "inside"])
@every_middleware
async def test_law_8_a_signal_gets_out_of_a_careless_middleware_around_ours_or_in_it(
    make: Make, order: str, careless: Middleware, signal: Signal
) -> None:
    """R35."""
    chain = [careless, make()] if order == "outside" else [make(), careless]

    with pytest.raises(type(signal)) as caught:
        await run(raising(signal), chain)

    assert caught.value is signal


@every_signal
@every_middleware
async def test_law_8_a_signal_of_a_blocking_handler_gets_out(make: Make, signal: Signal) -> None:
    def handle(_: Any) -> None:
        raise signal

    with pytest.raises(type(signal)):
        await run(handle, [swallow_everything, make()])


@every_middleware
async def test_law_8_a_signal_in_a_group_of_errors_gets_out_and_is_not_acted_on(
    make: Make,
) -> None:
    calls = 0

    async def handle(_: Any) -> None:
        nonlocal calls
        calls += 1
        raise ExceptionGroup("two tasks", [ValueError("x"), DeferMessage()])

    with pytest.raises(ExceptionGroup):
        await run(handle, [swallow_everything, make()])

    assert calls == 1


@pytest.mark.parametrize("careless", [swallow_everything, replace_every_error])
async def test_law_8_a_signal_that_a_middleware_raised_gets_out_of_those_around_it(
    careless: Middleware,
) -> None:
    async def turn_away(request: Any, context: Context, proceed: Proceed) -> Any:
        raise InvalidMessage("closed on Sundays")

    with pytest.raises(InvalidMessage, match="Sundays"):
        await run(raising(AssertionError("must not run")), [careless, turn_away])


@every_middleware
async def test_a_lost_lease_is_no_failure_to_act_on(make: Make) -> None:
    """Law 3: whoever lost the lease lets go, and neither tries again nor falls back."""
    calls = 0

    async def handle(_: Any) -> None:
        nonlocal calls
        calls += 1
        raise LeaseLost("orders", "m1")

    with pytest.raises(LeaseLost):
        await run(handle, [make()])

    assert calls == 1


@every_middleware
async def test_law_6_a_cancelled_handler_ends_cancelled(make: Make) -> None:
    started = asyncio.Event()

    async def handle(_: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run(handle, [make()]))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@every_middleware
async def test_law_6_a_cancellation_that_a_handler_answers_with_cleaning_up_stays_one(
    make: Make,
) -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def handle(_: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await yield_to_loop()
            cleaned.set()

    task = asyncio.create_task(run(handle, [swallow_everything, make(), swallow_everything]))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


@every_middleware
async def test_law_6_a_cancellation_during_a_blocking_handler_is_not_swallowed(
    make: Make,
) -> None:
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def handle(_: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    task = asyncio.create_task(run(handle, [make()]))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await loop.shutdown_default_executor()


@every_middleware
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_program_passes_through(make: Make, error: type[BaseException]) -> None:
    with pytest.raises(error):
        await run(raising(error()), [make()])


@every_middleware
async def test_a_result_comes_through_every_middleware(make: Make) -> None:
    async def handle(request: Any) -> str:
        return f"paid {request.order}"

    assert await run(handle, [make()]) == "paid A1"
