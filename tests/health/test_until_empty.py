"""A job that ends by itself: which queues it waits for, and that it says so."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import structlog.testing

from pump import UnacceptableLimit
from pump.errors import UnacceptableLimitReached
from pump.testing.builders import a_message

from ..core.notes import Note, with_notes
from ..core.rig import Gate, Rig

pytestmark = pytest.mark.usefixtures("quiet")


async def test_when_one_is_paused_then_waiting_for_its_queue_is_said_once_and_goes_on() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.send(1)
        waiting = asyncio.create_task(rig.dispatcher.wait_until_empty())
        with structlog.testing.capture_logs() as lines:
            await rig.clock.advance(60)
        assert not waiting.done()
        [line] = [line for line in lines if line["event"] == "drain.delayed"]
        assert (line["log_level"], line["subscription"]) == ("warning", "orders")
        assert "resume" in line["remedy"]

        rig.dispatcher.resume("orders")
        await rig.clock.advance(60)

        assert waiting.done()
        await waiting


async def test_when_another_is_still_at_work_then_nobody_complains_of_the_paused_one() -> None:
    gate = Gate()
    rig = Rig(gate)
    with_notes(rig)
    async with rig:
        await rig.start()
        rig.dispatcher.pause("notes")
        await rig.app.post(Note(n=1))
        await rig.send(1)
        waiting = asyncio.create_task(rig.dispatcher.wait_until_empty())
        with structlog.testing.capture_logs() as lines:
            await rig.clock.advance(60)

        assert "drain.delayed" not in [line["event"] for line in lines]
        waiting.cancel()
        await asyncio.wait([waiting])
        gate.open()


async def test_when_a_paused_ones_queue_is_empty_then_it_keeps_nobody_waiting() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        waiting = asyncio.create_task(rig.dispatcher.wait_until_empty())
        await rig.clock.advance(5)

        assert waiting.done()
        await waiting


@pytest.mark.parametrize("how", ["drained", "stopped"])
async def test_when_nobody_will_empty_a_queue_then_it_is_not_waited_for(how: str) -> None:
    """A job whose subscription has stopped for good waited for ever, and did not say why."""
    rig = Rig(unacceptable_limit=UnacceptableLimit(count=1))
    with_notes(rig)
    async with rig:
        await rig.start()
        if how == "drained":
            rig.dispatcher.drain("orders")
        else:
            await rig.send_raw(a_message(b"?", type="Work"))
        await rig.clock.settle()
        assert rig.dispatcher.performers[0].state == how
        await rig.send(1)
        waiting = asyncio.create_task(rig.dispatcher.wait_until_empty())
        await rig.clock.advance(5)

        assert waiting.done()
        await waiting
        with suppress(UnacceptableLimitReached):
            await rig.finish()
