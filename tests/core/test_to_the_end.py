"""What must not be left half done ends, whatever is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from pump.clock import yield_to_loop
from pump.tasks import to_the_end


async def test_when_cancelled_then_it_closes_first_and_the_cancellation_goes_on() -> None:
    may_close = asyncio.Event()
    closed = []

    async def close() -> None:
        await may_close.wait()
        closed.append("closed")

    closing = asyncio.create_task(to_the_end(close()))
    await yield_to_loop()
    closing.cancel()
    await yield_to_loop()
    assert not closing.done()
    may_close.set()

    with pytest.raises(asyncio.CancelledError):
        await closing
    assert closed == ["closed"]


async def test_when_closing_fails_then_the_error_is_raised() -> None:
    async def close() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        await to_the_end(close())
