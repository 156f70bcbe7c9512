"""A broker error never kills a pump (law 7, R51, R52)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from pump.errors import AccessDenied, ConnectionFailed, GatewayError, Throttled
from pump.events import Status
from pump.loop.lanes import Lanes
from pump.loop.workers import Workers
from pump.outcome import Ack, DeferMessage
from pump.testing import VirtualClock

from ..core.faulty_gateway import FaultyGateway
from ..core.rig import Gate, Rig, Work

ERRORS = [
    ConnectionFailed("broker", "away"),
    Throttled("broker", 2.0),
    AccessDenied("orders", "everything"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operation", ["receive", "settle", "extend"])
async def test_when_the_broker_fails_for_a_while_then_the_pump_goes_on_afterwards(
    operation: str, error: GatewayError
) -> None:
    """Law 7."""
    async with Rig() as rig:
        await rig.start()
        rig.gateway.fail(operation, error)
        await rig.send(1)
        await rig.clock.advance(100)

        rig.gateway.heal(operation)
        await rig.send(2)
        await rig.clock.advance(100)

        assert await rig.total() == 0
        assert {1, 2} <= set(rig.ended)
        assert rig.states == ["running"]
        assert rig.dispatcher.performers[0].stats.restarts == 0


@pytest.mark.parametrize("operation", ["receive", "settle", "extend"])
async def test_when_the_broker_never_answers_for_a_while_then_the_pump_goes_on_afterwards(
    operation: str,
) -> None:
    """Law 7."""
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        rig.gateway.hang(operation)
        await rig.clock.advance(20)
        rig.gateway.heal(operation)
        gate.open()
        await rig.clock.advance(60)

        assert [outcome.status for outcome in rig.outcomes] == [Status.PROCESSED]
        assert rig.states == ["running"]


async def test_when_acks_fail_then_leases_are_renewed_until_they_get_through() -> None:
    """The work is done once, though the broker heard of it late."""
    async with Rig() as rig:
        await rig.start()
        rig.gateway.fail("settle", ConnectionFailed("broker", "away"))
        await rig.send(1)
        await rig.clock.advance(200)

        rig.gateway.heal("settle")
        await rig.clock.advance(31)

        assert rig.started == [1]
        assert [outcome.status for outcome in rig.outcomes] == [Status.PROCESSED]
        assert rig.lost == []


async def test_when_acks_fail_and_renewal_is_off_then_the_loss_is_told_and_it_comes_again() -> None:
    """Law 3."""
    async with Rig(renew=False) as rig:
        await rig.start()
        rig.gateway.fail("settle", ConnectionFailed("broker", "away"))
        await rig.send(1)
        await rig.clock.advance(31)
        rig.gateway.heal("settle")
        await rig.clock.advance(31)

        assert rig.started == [1, 1]
        assert [event.attempt for event in rig.lost] == [1]
        assert [(o.status, o.attempt) for o in rig.outcomes] == [(Status.PROCESSED, 2)]


async def test_when_acks_are_held_up_then_no_more_is_received_than_the_window_allows() -> None:
    async with Rig(concurrency=2, prefetch=2) as rig:
        await rig.send(*range(20))
        rig.gateway.fail("settle", ConnectionFailed("broker", "away"))
        await rig.start()
        await rig.clock.advance(300)
        assert len(rig.record.received) == 4

        rig.gateway.heal("settle")
        await rig.clock.advance(60)

        assert sorted(rig.ended) == list(range(20))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["receive", "settle", "extend"]),
            st.sampled_from(["fail", "hang", "heal"]),
            st.integers(0, 40),
        ),
        max_size=12,
    )
)
@settings(max_examples=30)
def test_when_the_broker_fails_at_random_then_nothing_is_lost_and_nothing_acked_undone(
    troubles: list[tuple[str, str, int]],
) -> None:
    """Laws 1, 2, 3 and 7."""

    async def behave(work: Work) -> None:
        await rig.clock.sleep(work.n * 7)

    async def scenario() -> None:
        async with rig:
            await rig.send(*range(8))
            await rig.start()
            for operation, trouble, seconds in troubles:
                match trouble:
                    case "fail":
                        rig.gateway.fail(operation, ConnectionFailed("broker", "away"))
                    case "hang":
                        rig.gateway.hang(operation)
                    case _:
                        rig.gateway.heal(operation)
                await rig.clock.advance(seconds)
            for operation in ("receive", "settle", "extend"):
                rig.gateway.heal(operation)
            await rig.clock.advance(600)

            assert await rig.total() == 0
            assert set(rig.ended) == set(range(8))
            acked = [d.message.id for d, a in rig.record.settled if isinstance(a, Ack)]
            assert len(acked) == len(set(acked)) == 8
            assert rig.states == ["running"]

    # A receive that hangs is not given up by the pump: the gateway's own timeouts see to that.
    troubles[:] = [each for each in troubles if each[:2] != ("receive", "hang")]
    rig = Rig(behave, concurrency=3, lease=timedelta(seconds=30))
    asyncio.run(scenario())


async def test_when_a_message_was_delivered_far_too_often_then_it_is_dead_lettered_unhandled() -> (
    None
):
    """R93: it may be what kills the process each time."""
    async with Rig(max_attempts=6) as rig:
        await rig.send(1)
        port = rig.gateway.consumer(rig.subscription)
        for _ in range(6):
            # As a process that dies: received, and never heard of again.
            assert len(await port.receive(max_count=1, wait_s=0.0)) == 1
            await rig.clock.advance(31)
        await rig.start()
        await rig.clock.settle()

        [outcome] = rig.outcomes
        assert rig.started == []
        assert (outcome.status, outcome.destination) == (Status.DEAD_LETTERED, "dead")
        assert outcome.detail.startswith("delivered 7 times without an end (max_attempts=6)")


async def test_when_a_handler_defers_a_hundred_times_then_it_is_not_taken_for_a_killer() -> None:
    """R93."""

    async def defer(work: Work) -> None:
        if rig.attempts[work.n] <= 100:
            raise DeferMessage(timedelta(minutes=1))

    async with Rig(defer) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(101 * 60)

        assert rig.outcomes[-1].status is Status.PROCESSED


async def test_when_nothing_handles_what_is_in_flight_then_the_pump_counts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R93: a defect of ours that `/livez` is to see, and a busy pump is none."""
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=1) as rig:
        await rig.start()
        await rig.send(1, 2)
        await rig.clock.settle()
        pump = rig.dispatcher.performers[0].pump
        assert pump is not None
        busy = pump.unattended_count
        monkeypatch.setattr(Workers, "wake", lambda workers: None)
        monkeypatch.setattr(Lanes, "take", lambda lanes: None)

        gate.open()
        await rig.clock.settle()

        assert (busy, pump.unattended_count) == (0, 1)


@pytest.mark.parametrize(
    "part", ["receiver", "poller", "workers", "settler", "settle", "lease keeper"]
)
async def test_when_something_cancels_a_part_of_the_pump_then_another_pump_takes_over(
    part: str,
) -> None:
    """R93: a handler may cancel all tasks of the loop; no subscription stands still for it."""
    clock = VirtualClock(chance=0.0)
    gateway = FaultyGateway(clock, max_settle_calls=2)
    async with Rig(gateway=gateway, clock=clock) as rig:
        await rig.start()
        if part == "settle":
            rig.gateway.hang("settle")
        await rig.send(1)
        await rig.clock.settle()
        cancelled = [task for task in asyncio.all_tasks() if task.get_name() == part]
        for task in cancelled:
            task.cancel()
        await rig.clock.settle()
        rig.gateway.heal("settle")
        await rig.clock.advance(100)
        await rig.send(2)
        await rig.clock.advance(100)

        assert cancelled
        assert await rig.total() == 0
        assert {1, 2} <= set(rig.ended)
        assert rig.states == ["running", "failed", "running"]
        assert rig.dispatcher.performers[0].stats.restarts == 1
