"""A pump that stops rather than drain its queue into the bin; and handlers that block."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from pump import (
    DeferMessage,
    RejectMessage,
    UnacceptableLimit,
)
from pump.errors import UnacceptableLimitReached
from pump.outcome import Ack, Defer
from pump.testing.builders import a_message

from ..core.rig import Rig, Work


async def test_when_too_many_are_unacceptable_then_the_pump_stops_and_leaves_the_rest() -> None:
    async with Rig(
        invalid_queue="bad",
        concurrency=1,
        prefetch=0,
        unacceptable_limit=UnacceptableLimit(count=3, window=timedelta(minutes=1)),
    ) as rig:
        for number in range(10):
            await rig.send_raw(a_message(b"?", type="Work", id=f"m-{number}"))
        await rig.start()

        assert rig.running is not None
        with pytest.raises(UnacceptableLimitReached, match="'orders' met 3 unacceptable") as caught:
            await rig.running

        assert (caught.value.subscription, caught.value.count) == ("orders", 3)
        assert await rig.total("bad") == 3
        stats = await rig.depth()
        assert (stats.visible, stats.in_flight) == (7, 0)
        assert rig.states == ["running", "draining", "stopped"]
        assert rig.dispatcher.performers[0].stats.restarts == 0


async def test_when_unacceptable_messages_are_spread_out_then_the_pump_goes_on() -> None:
    limit = UnacceptableLimit(count=3, window=timedelta(minutes=1))
    async with Rig(invalid_queue="bad", unacceptable_limit=limit) as rig:
        await rig.start()
        for _ in range(10):
            await rig.send_raw(a_message(b"?", type="Work"))
            await rig.clock.advance(31)

        assert await rig.total("bad") == 10
        assert rig.states == ["running"]


async def test_when_messages_are_rejected_as_undeliverable_then_the_limit_does_not_count_them() -> (
    None
):
    async def reject(work: Work) -> None:
        raise RejectMessage("no")

    async with Rig(reject, unacceptable_limit=UnacceptableLimit(count=1)) as rig:
        await rig.start()
        await rig.send(*range(5))
        await rig.clock.settle()

        assert await rig.total("dead") == 5
        assert rig.states == ["running"]


async def test_when_a_handler_blocks_then_it_runs_in_a_thread_and_is_acked() -> None:
    threads: list[str] = []

    def blocking(work: Work) -> None:
        threads.append(threading.current_thread().name)

    async with Rig() as rig:
        rig.app.registry._registrations.clear()
        rig.app.register(Work, blocking)
        await rig.start()
        await rig.send(1, 2)
        await rig.clock.advance(1)

        assert len(threads) == 2
        assert all(name.startswith("pump-handler") for name in threads)
        assert all(isinstance(action, Ack) for _, action in rig.record.settled)


async def test_when_a_blocking_handler_raises_then_its_signal_counts() -> None:
    def blocking(work: Work) -> None:
        raise DeferMessage(timedelta(seconds=9))

    async with Rig() as rig:
        rig.app.registry._registrations.clear()
        rig.app.register(Work, blocking)
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(1)

        assert [action for _, action in rig.record.actions()] == [Defer(9)]
