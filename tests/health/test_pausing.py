"""Pausing and resuming: nothing is received, and nothing that was received is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from pump import Subscription
from pump.errors import ConnectionFailed
from pump.message import Delivery
from pump.outcome import ACK
from pump.ports import ConsumerPort
from pump.testing.virtual_clock import VirtualClock

from ..core.faulty_gateway import FaultyGateway
from ..core.notes import Defect, Note, with_notes
from ..core.rig import Gate, Rig, receipts_settled

pytestmark = pytest.mark.usefixtures("quiet")


async def test_when_paused_then_nothing_more_is_received_until_it_is_resumed() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.send(1, 2)
        await rig.clock.advance(300)
        assert rig.started == []
        assert (await rig.depth()).visible == 2

        rig.dispatcher.resume("orders")
        await rig.clock.settle()

        assert sorted(rig.ended) == [1, 2]
        assert rig.states == ["running", "paused", "running"]


async def test_when_paused_then_the_open_receive_is_cancelled_and_no_other_begins() -> None:
    async with Rig() as rig:
        await rig.start()
        assert rig.record.calls["receive"] == 1

        rig.dispatcher.pause("orders")
        await rig.clock.settle()

        [performer] = rig.dispatcher.performers
        assert performer.pump is not None
        assert performer.pump.polls.open_count == 0
        await rig.clock.advance(100)
        assert rig.record.calls["receive"] == 1


async def test_when_paused_then_what_is_in_hand_runs_to_its_end_with_its_leases_kept() -> None:
    """Law 5: also what waited in hand for a worker."""
    gate = Gate()
    async with Rig(gate, concurrency=2, prefetch=3) as rig:
        await rig.send(*range(10))
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.clock.advance(120)
        assert rig.running_count == 2
        assert rig.lost == []
        assert len(rig.record.extended) >= 5

        gate.open()
        await rig.clock.settle()

        assert sorted(rig.ended) == [0, 1, 2, 3, 4]
        assert [action for _, action in rig.record.settled] == [ACK] * 5
        assert (await rig.depth()).visible == 5
        assert rig.dispatcher.is_idle


async def test_when_paused_while_a_receive_brings_messages_then_none_is_lost() -> None:
    """Each message is handled here, or handed back by the receive that was cancelled."""
    rig = Rig()
    arrived = asyncio.Event()
    inner = rig.gateway.consumer

    class Late:
        """Has leased its messages, and is on its way back with them."""

        def __init__(self, port: ConsumerPort) -> None:
            self._port = port
            self.settle, self.extend, self.aclose = port.settle, port.extend, port.aclose

        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            deliveries = await self._port.receive(max_count=max_count, wait_s=wait_s)
            arrived.set()
            return deliveries

    rig.gateway.consumer = lambda subscription: Late(inner(subscription))  # type: ignore[method-assign]
    async with rig:
        await rig.start()
        await rig.send(1)
        await arrived.wait()
        rig.dispatcher.pause("orders")
        await rig.clock.settle()

        stats = await rig.depth()
        assert stats.in_flight == 0
        assert len(rig.ended) + stats.visible == 1
        rig.dispatcher.resume("orders")
        await rig.clock.settle()
        assert rig.ended == [1]
        assert await rig.total() == 0


async def test_when_paused_in_the_turn_in_which_a_message_comes_then_it_is_not_lost() -> None:
    async with Rig() as rig:
        await rig.start()
        for number in range(20):
            await rig.send(number)
            rig.dispatcher.pause("orders")
            await rig.clock.settle()
            stats = await rig.depth()
            assert stats.in_flight == 0
            assert len(rig.ended) + stats.visible == number + 1
            rig.dispatcher.resume("orders")
            await rig.clock.settle()
            assert len(rig.ended) == number + 1


async def test_when_paused_and_resumed_at_once_then_it_goes_on_receiving() -> None:
    async with Rig() as rig:
        await rig.start()

        rig.dispatcher.pause("orders")
        rig.dispatcher.resume("orders")
        await rig.send(1)
        await rig.clock.settle()

        assert rig.ended == [1]


async def test_when_resumed_and_paused_at_once_then_it_stays_paused() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.clock.settle()

        rig.dispatcher.resume("orders")
        rig.dispatcher.pause("orders")
        await rig.send(1)
        await rig.clock.advance(100)

        assert rig.started == []
        assert rig.states[-1] == "paused"


async def test_when_paused_or_resumed_twice_then_the_second_time_changes_nothing() -> None:
    async with Rig() as rig:
        await rig.start()
        for _ in range(2):
            rig.dispatcher.pause("orders")
            await rig.clock.settle()
        for _ in range(2):
            rig.dispatcher.resume("orders")
            await rig.clock.settle()
        await rig.send(1)
        await rig.clock.settle()

        assert rig.states == ["running", "paused", "running"]
        assert rig.ended == [1]


async def test_when_paused_then_its_credits_add_up_after_many_times() -> None:
    """A credit lost at each pause would have it receive less and less, and then nothing."""
    gate = Gate()
    async with Rig(gate, concurrency=3, prefetch=0) as rig:
        await rig.start()
        for _ in range(20):
            rig.dispatcher.pause("orders")
            await rig.clock.settle()
            rig.dispatcher.resume("orders")
            await rig.clock.settle()
        await rig.send(*range(10))
        await rig.clock.settle()

        assert rig.running_count == 3
        gate.open()


async def test_when_many_pollers_are_at_work_then_all_of_them_are_recalled() -> None:
    clock = VirtualClock(chance=0.0)
    gateway = FaultyGateway(clock, max_pollers=4, receive_batch=10)
    async with Rig(Gate(), clock=clock, gateway=gateway, concurrency=500, prefetch=0) as rig:
        await rig.send(*range(100))
        await rig.start()
        [performer] = rig.dispatcher.performers
        assert performer.pump is not None
        assert performer.pump.polls.open_count > 1

        rig.dispatcher.pause("orders")
        await rig.clock.settle()

        assert performer.pump.polls.open_count == 0
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "poller"]
        rig.dispatcher.resume("orders")
        await rig.clock.settle()
        assert performer.pump.polls.open_count == 1


async def test_when_one_is_paused_then_the_others_go_on() -> None:
    rig = Rig()
    noted = with_notes(rig)
    async with rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.send(1)
        await rig.app.post(Note(n=5))
        await rig.clock.advance(1)

        assert (rig.started, noted) == ([], [5])
        assert [each.state for each in rig.dispatcher.performers] == ["paused", "running"]


# -- restarts -----------------------------------------------------------------------------------


async def test_when_a_paused_pump_breaks_then_its_successor_is_paused_too() -> None:
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.send(1)
        await rig.start()
        rig.dispatcher.pause("orders")
        rig.gateway.fail("extend", Defect("bug"), times=1)
        await rig.clock.advance(60)
        await rig.send(2)
        await rig.clock.advance(60)
        assert rig.states == ["running", "paused", "failed", "paused"]
        assert rig.started == [1]

        gate.open()
        rig.dispatcher.resume("orders")
        await rig.clock.advance(60)

        assert set(rig.ended) == {1, 2}
        assert await rig.total() == 0


@pytest.mark.parametrize(
    ("asked", "states"),
    [
        (["pause"], ["running", "failed", "paused"]),
        (["pause", "resume"], ["running", "failed", "running"]),
        (["drain"], ["running", "failed", "drained"]),
        (["drain", "resume"], ["running", "failed", "running"]),
        (["pause", "drain"], ["running", "failed", "drained"]),
    ],
    ids=" ".join,
)
async def test_when_asked_during_the_pause_before_a_restart_then_it_is_as_asked(
    asked: list[str], states: list[str]
) -> None:
    async with Rig() as rig:
        rig.gateway.fail("receive", Defect("bug"), times=1)
        await rig.start()
        assert rig.states == ["running", "failed"]

        for action in asked:
            getattr(rig.dispatcher, action)("orders")
        await rig.clock.advance(5)

        assert rig.states == states
        assert rig.record.calls["receive"] == (2 if states[-1] == "running" else 1)


# -- starting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("drain", "drained")])
async def test_when_asked_before_the_queues_are_made_then_it_never_receives(
    action: str, state: str
) -> None:
    async with Rig() as rig:
        rig.gateway.fail("ensure", ConnectionFailed("broker", "away"))
        await rig.start()
        getattr(rig.dispatcher, action)("orders")
        await rig.clock.advance(1)
        assert rig.dispatcher.performers[0].state == "starting"

        rig.gateway.heal("ensure")
        await rig.clock.advance(120)

        assert rig.states == [state]
        assert rig.record.calls["receive"] == 0
        rig.dispatcher.resume("orders")
        await rig.send(1)
        await rig.clock.settle()
        assert rig.ended == [1]


# -- scaling ------------------------------------------------------------------------------------


async def test_when_scaled_while_paused_then_it_has_that_size_when_it_is_resumed() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=0) as rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.send(*range(10))
        rig.dispatcher.scale("orders", 4)
        await rig.clock.settle()
        assert rig.running_count == 0

        rig.dispatcher.resume("orders")
        await rig.clock.settle()

        assert rig.running_count == 4
        gate.open()


async def test_when_scaled_up_while_paused_then_what_waits_in_hand_runs_wider() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=3) as rig:
        await rig.send(*range(10))
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.clock.settle()

        rig.dispatcher.scale("orders", 3)
        await rig.clock.settle()

        assert rig.running_count == 3
        gate.open()
        await rig.clock.settle()
        assert len(rig.ended) == 4


async def test_when_two_share_a_queue_and_one_is_paused_then_the_other_empties_it() -> None:
    rig = Rig()
    rig.app.subscribe(Subscription(queue="orders", name="more", request=rig.subscription.request))
    async with rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.send(*range(20))
        await rig.clock.advance(5)

        assert len(rig.ended) == 20
        assert set(receipts_settled(each for each, _ in rig.record.settled).values()) == {1}


async def test_when_paused_longer_than_a_lease_then_long_work_is_still_done_once() -> None:
    async def slow(work: object) -> None:
        await rig.clock.sleep(600)

    rig = Rig(slow, lease=timedelta(seconds=30))
    async with rig:
        await rig.send(1)
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.clock.advance(700)

        assert rig.ended == [1]
        assert rig.lost == []
        assert await rig.total() == 0
