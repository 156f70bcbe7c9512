"""LogHandling."""

from __future__ import annotations

import asyncio
import logging
import pickle
from typing import Any

import pytest
from structlog.testing import capture_logs

from handlers import LogHandling
from pump.outcome import DeferMessage, Signal
from pump.testing.virtual_clock import VirtualClock

from .support import Pay, a_context, raising, run, swallow_everything


@pytest.fixture(autouse=True)
def _listen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pump.handlers")


async def test_a_handling_that_completed_is_one_line_with_its_duration(
    clock: VirtualClock,
) -> None:
    """R61."""

    async def handle(_: Any) -> None:
        await clock.sleep(2)

    with capture_logs() as lines:
        task = asyncio.create_task(run(handle, [LogHandling()], context=a_context(clock)))
        await clock.advance(2)
        await task

    [line] = [each for each in lines if each["log_level"] != "debug"]
    assert line == {
        "event": "handler.completed",
        "log_level": "info",
        "handler": "shop.Pay",
        "attempt": 1,
        "run_s": 2.0,
    }


async def test_a_failure_is_named_and_its_text_kept_back() -> None:
    """R61: the text of an error often quotes the message."""
    with capture_logs() as lines, pytest.raises(ValueError, match="4711"):
        await run(raising(ValueError("card 4711")), [LogHandling()], request=Pay("secret order"))

    line = lines[-1]
    assert (line["event"], line["log_level"], line["error"]) == (
        "handler.failed",
        "warning",
        "ValueError",
    )
    assert "4711" not in str(lines)
    assert "secret order" not in str(lines)


async def test_with_details_a_failure_is_logged_with_text_and_traceback() -> None:
    error = ValueError("card 4711")

    with capture_logs() as lines, pytest.raises(ValueError, match="4711"):
        await run(raising(error), [LogHandling(details=True)])

    assert lines[-1]["error"] == "ValueError: card 4711"
    assert "ValueError: card 4711" in lines[-1]["exception"]
    assert "exc_info" not in lines[-1], "a renderer could print the frames' variables"


@pytest.mark.parametrize("inside", [[], [swallow_everything]])
async def test_a_signal_is_no_failure(inside: list[Any]) -> None:
    with capture_logs() as lines, pytest.raises(Signal):
        await run(raising(DeferMessage()), [LogHandling(), *inside])

    line = lines[-1]
    assert (line["event"], line["log_level"], line["signal"]) == (
        "handler.signalled",
        "info",
        "DeferMessage",
    )


async def test_below_the_level_somebody_listens_to_nothing_is_put_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "pump.handlers")

    async def handle(_: Any) -> None: ...

    with capture_logs() as lines:
        await run(handle, [LogHandling()])

    assert lines == []


async def test_a_cancellation_is_logged(clock: VirtualClock) -> None:
    async def handle(_: Any) -> None:
        await clock.sleep(9)

    with capture_logs() as lines:
        task = asyncio.create_task(run(handle, [LogHandling()], context=a_context(clock)))
        await clock.settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert lines[-1]["event"] == "handler.cancelled"


def test_it_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(LogHandling(details=True))) == LogHandling(details=True)
