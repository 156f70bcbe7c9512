"""Dispatcher: scaled while it runs, drained as one, and sweeping along the way."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import structlog.testing

from pump import RejectMessage
from pump.errors import ConfigurationError, ConnectionFailed

from .notes import Defect, with_notes
from .rig import Gate, Rig, Work

pytestmark = pytest.mark.usefixtures("quiet")


# -- scaling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [0, -3])
async def test_when_scaled_to_nothing_then_that_is_refused(concurrency: int) -> None:
    async with Rig() as rig:
        await rig.start()

        with pytest.raises(ConfigurationError, match="concurrency"):
            rig.dispatcher.scale("orders", concurrency)


async def test_when_an_unknown_subscription_is_scaled_then_the_known_ones_are_named() -> None:
    rig = Rig()
    with_notes(rig)
    async with rig:
        await rig.start()

        with pytest.raises(ConfigurationError, match="use one of orders, notes"):
            rig.dispatcher.scale("nobody", 3)


async def test_when_a_scaled_pump_is_restarted_then_it_keeps_its_size() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=0) as rig:
        await rig.start()
        rig.dispatcher.scale("orders", 4)
        rig.gateway.fail("receive", Defect("bug"), times=1)
        await rig.clock.advance(30)
        assert rig.states == ["running", "failed", "running"]

        await rig.send(*range(10))
        await rig.clock.settle()

        assert rig.running_count == 4
        gate.open()


async def test_when_scaled_before_it_runs_then_the_pump_starts_with_that_size() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=0) as rig:
        await rig.send(*range(10))
        dispatcher = rig.app.dispatcher()
        dispatcher.scale("orders", 3)
        running = asyncio.create_task(dispatcher.run())
        await rig.clock.settle()

        assert rig.running_count == 3
        gate.open()
        dispatcher.drain()
        await rig.clock.settle()
        await running


# -- ending -------------------------------------------------------------------------------------


async def test_when_drained_before_it_runs_then_it_never_starts() -> None:
    async with Rig() as rig:
        await rig.send(1)
        dispatcher = rig.app.dispatcher()
        dispatcher.drain()

        await dispatcher.run()

        assert rig.started == []
        assert rig.record.calls["receive"] == 0


async def test_when_stopped_while_the_broker_does_not_answer_then_it_ends_at_once() -> None:
    async with Rig() as rig:
        rig.gateway.hang("ensure")
        await rig.start()
        assert rig.running is not None

        rig.dispatcher.stop_now()
        await rig.clock.settle()

        assert rig.running.done()
        await rig.running
        assert [each.state for each in rig.dispatcher.performers] == ["stopped"]


async def test_when_cancelled_while_the_broker_does_not_answer_then_nothing_is_left() -> None:
    """Law 6."""
    async with Rig() as rig:
        rig.gateway.hang("ensure")
        await rig.start()
        assert rig.running is not None

        rig.running.cancel()
        await rig.clock.settle()

        assert rig.running.cancelled()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "channels"]


async def test_when_many_subscriptions_are_drained_then_all_end_together() -> None:
    rig = Rig()
    with_notes(rig)
    async with rig:
        await rig.start()
        await rig.finish()

        assert [each.state for each in rig.dispatcher.performers] == ["stopped", "stopped"]
        assert not [task for task in asyncio.all_tasks() if "pump" in task.get_name()]


async def test_when_the_broker_is_away_then_nobody_takes_its_queues_for_empty() -> None:
    """Law 7: who waits for empty queues goes on waiting."""
    async with Rig() as rig:
        await rig.start()
        rig.gateway.fail("queues", ConnectionFailed("broker", "away"))
        waiting = asyncio.create_task(rig.dispatcher.wait_until_empty())
        await rig.clock.advance(60)
        assert not waiting.done()

        rig.gateway.heal("queues")
        await rig.clock.advance(60)

        assert waiting.done()
        await waiting


async def test_when_a_pump_breaks_then_its_line_shows_a_plain_traceback_and_no_locals() -> None:
    """R57, R61."""
    async with Rig() as rig:
        rig.gateway.fail("receive", Defect("bug"), times=1)
        with structlog.testing.capture_logs() as lines:
            await rig.start()

        [line] = [line for line in lines if line["event"] == "pump.failed"]
        assert "Defect: bug" in line["traceback"]
        assert "exc_info" not in line


async def test_when_something_in_hand_then_the_dispatcher_is_not_idle() -> None:
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.start()
        moments = [rig.dispatcher.is_idle]
        await rig.send(1)
        await rig.clock.settle()
        moments.append(rig.dispatcher.is_idle)

        gate.open()
        await rig.clock.settle()
        moments.append(rig.dispatcher.is_idle)

        assert moments == [True, False, True]


async def test_when_something_was_spilled_then_the_running_app_sends_it_later() -> None:
    """T1: the sweeper runs along."""

    async def reject(work: Work) -> None:
        raise RejectMessage("no")

    async with Rig(reject, drain_timeout=timedelta(seconds=5)) as rig:
        await rig.send(1)
        rig.gateway.fail("send", ConnectionFailed("dead", "away"))
        await rig.start()
        await rig.clock.advance(10)
        assert len(await rig.spill.all()) == 1

        rig.gateway.heal("send")
        await rig.clock.advance(120)

        assert await rig.total("dead") == 1
        assert await rig.spill.all() == []
        await rig.finish()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "sweeper"]
