"""How much a pump runs and holds at once, and that it never goes hungry."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from pump.testing.virtual_clock import VirtualClock

from ..core.faulty_gateway import FaultyGateway
from ..core.rig import Gate, Rig, Work


@pytest.mark.parametrize("concurrency", [1, 3, 10])
async def test_when_there_is_plenty_to_do_then_no_more_handlers_run_than_allowed(
    concurrency: int,
) -> None:
    gate = Gate()
    async with Rig(gate, concurrency=concurrency) as rig:
        await rig.send(*range(50))
        await rig.start()
        await rig.clock.advance(100)
        assert rig.running_count == concurrency

        for number in range(50):
            gate.open(number)
            await rig.clock.settle()

        assert sorted(rig.ended) == list(range(50))
        assert rig.most_at_once == concurrency


@pytest.mark.parametrize(
    ("concurrency", "prefetch", "in_hand"), [(3, 3, 6), (3, 0, 3), (3, 5, 8), (1, 0, 1)]
)
async def test_when_there_is_plenty_to_do_then_no_more_is_held_than_concurrency_and_prefetch(
    concurrency: int, prefetch: int, in_hand: int
) -> None:
    gate = Gate()
    async with Rig(gate, concurrency=concurrency, prefetch=prefetch) as rig:
        await rig.send(*range(40))
        await rig.start()
        stats = await rig.depth()
        assert (stats.in_flight, stats.visible) == (in_hand, 40 - in_hand)

        for number in range(40):
            gate.open(number)
            await rig.clock.settle()

        assert rig.record.most_in_hand == in_hand
        assert len(rig.ended) == 40


@pytest.mark.parametrize("batch", [1, 10, 1_000])
async def test_when_one_handler_takes_long_then_later_messages_are_handled_meanwhile(
    batch: int,
) -> None:
    clock = VirtualClock()
    gate = Gate()
    async with Rig(gate, clock=clock, gateway=FaultyGateway(clock, receive_batch=batch)) as rig:
        await rig.start()
        for number in range(1, 6):
            await rig.send(number)
            await rig.clock.settle()
            assert rig.running_count == number

        gate.open()
        await rig.clock.settle()
        assert sorted(rig.ended) == [1, 2, 3, 4, 5]


async def test_when_one_group_is_blocked_then_another_is_received_and_handled() -> None:
    """R38: messages that wait for their predecessor keep no worker busy."""
    gate = Gate()
    async with Rig(gate, concurrency=10, prefetch=10) as rig:
        await rig.send(*range(11), group="a")
        await rig.start()
        await rig.send(100, group="b")
        await rig.clock.settle()

        assert rig.started == [0, 100]
        gate.open()


async def test_when_the_queue_is_empty_then_the_pump_waits_with_one_receive_at_a_time() -> None:
    async with Rig() as rig:
        await rig.start()
        await rig.clock.advance(100)

        # One at once, then one after each whole wait of 20 s.
        assert rig.record.calls["receive"] == 6


async def test_when_work_flows_steadily_then_receives_are_much_rarer_than_messages() -> None:
    async with Rig(concurrency=10, prefetch=90) as rig:
        await rig.send(*range(1_000))
        await rig.start()
        await rig.clock.settle()

        assert len(rig.ended) == 1_000
        assert rig.record.calls["receive"] <= 1_000 / 20


@pytest.mark.parametrize("way_s", [0.01, 0.06, 0.2])
async def test_when_the_broker_is_far_away_then_the_hand_grows_until_no_worker_waits(
    way_s: float,
) -> None:
    clock = VirtualClock(chance=0.0)
    gateway = FaultyGateway(clock, receive_batch=10, max_pollers=8, max_settle_calls=8)
    gateway.slow("receive", way_s)
    gateway.slow("settle", way_s)

    async def take_50_ms(work: Work) -> None:
        await clock.sleep(0.05)

    async with Rig(take_50_ms, clock=clock, gateway=gateway, concurrency=10) as rig:
        await rig.send(*range(4_000))
        await rig.start()
        await rig.clock.advance(5)
        ended_count = len(rig.ended)
        await rig.clock.advance(5)

        # Ten handlers of 50 ms: what they can do in five seconds, and they do nearly all of it.
        assert len(rig.ended) - ended_count > 0.95 * 1_000
        await rig.clock.advance(60)


async def test_when_handlers_take_long_then_the_hand_does_not_grow() -> None:
    clock = VirtualClock(chance=0.0)
    gateway = FaultyGateway(clock, receive_batch=10, max_pollers=8)
    gateway.slow("receive", 0.06)

    async def take_2_s(work: Work) -> None:
        await clock.sleep(2)

    async with Rig(take_2_s, clock=clock, gateway=gateway, concurrency=10) as rig:
        await rig.send(*range(200))
        await rig.start()
        await rig.clock.advance(60)

        assert len(rig.ended) == 200
        assert rig.record.most_in_hand == 20


async def test_when_scaled_up_then_more_run_and_prefetch_keeps_its_size() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=2, prefetch=3) as rig:
        await rig.send(*range(40))
        await rig.start()
        assert (rig.running_count, (await rig.depth()).in_flight) == (2, 5)

        rig.dispatcher.scale("orders", 6)
        await rig.clock.settle()

        assert (rig.running_count, (await rig.depth()).in_flight) == (6, 9)
        gate.open()
        await rig.clock.settle()
        assert len(rig.ended) == 40


async def test_when_scaled_down_then_running_handlers_finish_and_fewer_follow() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=6, prefetch=0) as rig:
        await rig.send(*range(40))
        await rig.start()

        rig.dispatcher.scale("orders", 2)
        await rig.clock.settle()
        assert rig.running_count == 6
        gate.open(0, 1, 2, 3, 4)
        await rig.clock.settle()

        assert rig.running_count == 2
        assert (await rig.depth()).in_flight == 2
        gate.open()
        await rig.clock.settle()
        assert len(rig.ended) == 40
        assert rig.cancelled == []


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
@settings(max_examples=25)
def test_when_scaled_up_and_down_under_load_then_everything_is_handled_once(
    sizes: list[int],
) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with Rig(gate, concurrency=3, prefetch=2) as rig:
            await rig.send(*range(30))
            await rig.start()
            for position, size in enumerate(sizes):
                rig.dispatcher.scale("orders", size)
                await rig.clock.settle()
                gate.open(position * 3, position * 3 + 1, position * 3 + 2)
                await rig.clock.settle()
            gate.open()
            await rig.clock.settle()

            assert sorted(rig.ended) == list(range(30))
            assert rig.most_at_once <= max(3, *sizes)
            assert await rig.total() == 0

    asyncio.run(scenario())
