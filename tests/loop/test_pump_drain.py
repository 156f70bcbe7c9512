"""Draining changes no outcome (law 5), and cancelling hands everything back (law 6)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import structlog.testing
from hypothesis import given, settings, strategies as st

from pump import DeferMessage, RejectMessage
from pump.clock import yield_to_loop
from pump.errors import AccessDenied, ConnectionFailed
from pump.events import Status
from pump.outcome import ABANDON, ACK, Abandon, Ack, Defer
from pump.testing.virtual_clock import VirtualClock

from ..core.faulty_gateway import FaultyGateway
from ..core.rig import Gate, Rig, Work


async def test_when_draining_then_what_was_not_started_is_visible_again_at_once_and_uncounted() -> (
    None
):
    """Law 5."""
    gate = Gate()
    async with Rig(gate, concurrency=2, prefetch=3) as rig:
        await rig.send(*range(10))
        await rig.start()
        assert (await rig.depth()).in_flight == 5

        await rig.drain()

        stats = await rig.depth()
        assert (stats.in_flight, stats.visible, stats.delayed) == (2, 8, 0)
        assert [type(action) for _, action in rig.record.settled] == [Abandon] * 3
        assert rig.dispatcher.performers[0].stats.released == 3
        gate.open()
        await rig.clock.settle()
        assert await rig.total() == 8
        assert sorted(rig.ended) == [0, 1]
        again = await rig.gateway.consumer(rig.subscription).receive(max_count=10, wait_s=0)
        assert {delivery.attempt for delivery in again} == {1}
        assert rig.running is not None
        await rig.running


async def test_when_draining_then_started_messages_finish_with_their_own_outcomes() -> None:
    """Law 5."""

    async def behave(work: Work) -> None:
        await gate(work)
        if work.n == 1:
            raise DeferMessage(timedelta(seconds=50))
        if work.n == 2:
            raise RejectMessage("no")

    gate = Gate()
    async with Rig(behave, concurrency=3, prefetch=0) as rig:
        await rig.send(0, 1, 2)
        await rig.start()
        await rig.drain()
        assert rig.running is not None
        assert not rig.running.done()

        gate.open()
        await rig.clock.settle()

        assert rig.running.done()
        assert [o.status for o in sorted(rig.outcomes, key=lambda o: o.status.value)] == [
            Status.DEAD_LETTERED,
            Status.PROCESSED,
            Status.RETRYING,
        ]
        assert [a for _, a in rig.record.settled if isinstance(a, Defer)] == [Defer(50)]
        assert await rig.total("dead") == 1
        assert rig.cancelled == []


async def test_when_draining_takes_long_then_leases_are_still_renewed() -> None:
    """Law 5."""
    gate = Gate()
    async with Rig(gate, drain_timeout=timedelta(minutes=10)) as rig:
        await rig.send(1)
        await rig.start()
        await rig.drain()
        await rig.clock.advance(300)
        assert len(rig.record.extended) >= 19
        assert rig.lost == []

        gate.open()
        await rig.clock.settle()

        assert [outcome.status for outcome in rig.outcomes] == [Status.PROCESSED]
        assert len(rig.record.received) == 1


async def test_when_draining_then_nothing_more_is_received() -> None:
    """Law 5."""
    async with Rig() as rig:
        await rig.start()
        before = rig.record.calls["receive"]

        await rig.finish()
        await rig.send(1)
        await rig.clock.advance(100)

        assert rig.record.calls["receive"] == before
        assert rig.started == []
        assert (await rig.depth()).visible == 1


async def test_when_draining_then_acks_are_flushed_without_lingering() -> None:
    """Law 5."""
    clock = VirtualClock()
    gateway = FaultyGateway(clock, settle_linger_s=60.0)
    gate = Gate()
    async with Rig(gate, clock=clock, gateway=gateway) as rig:
        gate.open(1, 2)
        await rig.send(1, 2, 3)
        await rig.start()
        assert rig.ended == [1, 2]
        assert rig.record.settled == [], "they wait for the third"
        await rig.drain()
        assert rig.record.settled == []

        gate.open()
        await rig.clock.settle()

        assert rig.running is not None
        assert rig.running.done()
        assert len(rig.record.settled) == 3
        assert await rig.total() == 0


async def test_when_handlers_do_not_finish_in_time_then_they_are_recalled_and_handed_back() -> None:
    async with Rig(Gate(), drain_timeout=timedelta(seconds=10)) as rig:
        await rig.send(1, 2)
        await rig.start()
        with structlog.testing.capture_logs() as lines:
            await rig.drain()
            await rig.clock.advance(9.9)
            assert rig.cancelled == []
            await rig.clock.advance(0.2)

        assert sorted(rig.cancelled) == [1, 2]
        assert rig.running is not None
        assert rig.running.done()
        stats = await rig.depth()
        assert (stats.visible, stats.in_flight) == (2, 0)
        assert [line["recalled"] for line in lines if line["event"] == "drain.expired"] == [2]
        again = await rig.gateway.consumer(rig.subscription).receive(max_count=10, wait_s=0)
        assert {delivery.attempt for delivery in again} == {2}, "it was tried, and counts"


async def test_when_the_ordered_head_is_drained_then_its_successors_go_back_uncounted() -> None:
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.send(1, 2, 3, group="a")
        await rig.start()
        await rig.drain()
        gate.open()
        await rig.clock.settle()

        assert rig.started == [1]
        assert rig.record.settled[-1][1] == ACK
        again = await rig.gateway.consumer(rig.subscription).receive(max_count=10, wait_s=0)
        assert [delivery.attempt for delivery in again] == [1, 1]


async def test_when_drained_twice_then_the_second_time_changes_nothing() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.drain()

        await rig.finish()

        rig.dispatcher.drain()
        assert rig.states == ["running", "draining", "stopped"]


async def test_when_the_broker_is_away_while_draining_then_the_drain_ends_with_the_leases() -> None:
    gate = Gate()
    async with Rig(gate, drain_timeout=timedelta(minutes=10)) as rig:
        await rig.send(1)
        await rig.start()
        for operation in ("settle", "extend"):
            rig.gateway.fail(operation, ConnectionFailed("broker", "away"))
        gate.open()
        await rig.drain()
        await rig.clock.advance(45)

        assert rig.running is not None
        assert rig.running.done()
        assert len(rig.lost) == 1
        assert rig.outcomes == []


async def test_when_the_broker_extends_but_never_settles_then_the_drain_still_ends() -> None:
    """A process that was told to stop stops; the leases run out by themselves."""
    async with Rig(drain_timeout=timedelta(seconds=20)) as rig:
        rig.gateway.fail("settle", AccessDenied("orders", "delete"))
        await rig.send(1)
        await rig.start()
        with structlog.testing.capture_logs() as lines:
            await rig.drain()
            await rig.clock.advance(19)
            assert rig.running is not None
            assert not rig.running.done()
            await rig.clock.advance(2)

        assert rig.running.done()
        [line] = [line for line in lines if line["event"] == "flush.expired"]
        assert (line["log_level"], line["unsettled"]) == ("error", 1)
        await rig.clock.advance(60)
        assert (await rig.depth()).visible == 1, "not lost"


async def test_when_stopped_now_then_everything_is_handed_back_at_once() -> None:
    """Law 6."""
    async with Rig(Gate(), concurrency=2, prefetch=3) as rig:
        await rig.send(*range(10))
        await rig.start()

        rig.dispatcher.stop_now()
        await rig.clock.settle()

        assert rig.running is not None
        assert rig.running.done()
        assert sorted(rig.cancelled) == [0, 1]
        stats = await rig.depth()
        assert (stats.visible, stats.in_flight) == (10, 0)
        actions = [action for _, action in rig.record.settled]
        assert actions.count(ABANDON) == 3
        assert actions.count(Defer(0)) == 2
        assert rig.states == ["running", "stopped"]
        assert rig.dispatcher.was_stopped_now


async def test_when_stopped_while_draining_then_it_ends_at_once() -> None:
    async with Rig(Gate()) as rig:
        await rig.send(1)
        await rig.start()
        await rig.drain()

        rig.dispatcher.stop_now()
        await rig.clock.settle()

        assert rig.running is not None
        assert rig.running.done()
        assert (await rig.depth()).visible == 1


async def test_when_stopped_and_a_handler_swallows_it_then_the_pump_ends_all_the_same() -> None:
    """Law 6."""

    async def swallow(work: Work) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await yield_to_loop()

    async with Rig(swallow, concurrency=1) as rig:
        await rig.send(1, 2, 3)
        await rig.start()

        rig.dispatcher.stop_now()
        await rig.clock.settle()

        assert rig.running is not None
        assert rig.running.done()
        assert rig.started == [1]
        assert (await rig.depth()).in_flight == 0


async def test_when_stopped_and_the_broker_does_not_answer_then_it_ends_within_seconds() -> None:
    async with Rig(Gate()) as rig:
        await rig.send(1)
        await rig.start()
        rig.gateway.hang("settle")

        rig.dispatcher.stop_now()
        await rig.clock.advance(5.1)

        assert rig.running is not None
        assert rig.running.done()


async def test_when_an_ack_is_under_way_as_the_pump_is_stopped_then_it_is_not_taken_back() -> None:
    """Law 1: handing back what is being settled would settle it twice."""
    clock = VirtualClock()
    gate = Gate()
    gateway = FaultyGateway(clock, settle_linger_s=3.0)
    async with Rig(gate, clock=clock, gateway=gateway) as rig:
        gate.open(1)
        [first, second] = await rig.send(1, 2)
        await rig.start()
        assert (rig.ended, rig.record.settled) == ([1], [])

        rig.dispatcher.stop_now()
        await rig.clock.settle()

        assert rig.record.actions() == [(first, ACK), (second, Defer(0))]


@pytest.mark.parametrize("ordered", [False, True])
@given(
    st.lists(st.integers(0, 8), max_size=8),
    st.integers(0, 8),
    st.sampled_from(["drain", "stop now"]),
)
@settings(max_examples=25)
def test_when_ended_at_any_moment_then_every_message_is_done_or_back_in_the_queue(
    ordered: bool, finished: list[int], before: int, ending: str
) -> None:
    """Laws 1, 2 and 5: whatever is not done can be received again at once."""

    async def scenario() -> None:
        gate = Gate()
        async with Rig(gate, concurrency=2, prefetch=2) as rig:
            for number in range(9):
                await rig.send(number, group="ab"[number % 2] if ordered else None)
            await rig.start()
            for number in finished[:before]:
                gate.open(number)
                await rig.clock.settle()
            if ending == "drain":
                await rig.drain()
                gate.open()
            else:
                rig.dispatcher.stop_now()
            await rig.clock.settle()

            assert rig.running is not None
            assert rig.running.done()
            acked = [d.message for d, action in rig.record.settled if isinstance(action, Ack)]
            stats = await rig.depth()
            assert len(acked) == len({message.id for message in acked}) == len(rig.ended)
            assert (stats.visible, stats.in_flight) == (9 - len(acked), 0)
            receipts = [delivery.receipt for delivery, _ in rig.record.settled]
            assert sorted(receipts) == sorted(d.receipt for d in rig.record.received)

    asyncio.run(scenario())
