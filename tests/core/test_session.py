"""Sessions: one group for one consumer at a time, in order (R40)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from pump import App, RejectionReason
from pump.errors import (
    ConnectionFailed,
    InvalidReceipt,
    SessionLocked,
    SessionLockLost,
    Throttled,
    UnsupportedOperation,
)
from pump.outcome import ABANDON, ACK, Defer, Fate
from pump.ports import SessionGateway
from pump.stores.spill import MemorySpill

from .faulty_gateway import FaultyGateway
from .session_bench import MINUTE, NOW, Bench, ids, open_bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with open_bench() as bench:
        yield bench


async def test_when_a_session_is_accepted_then_its_messages_come_in_order_and_no_others(
    bench: Bench,
) -> None:
    """R40."""
    bench.gateway.put("ada", "a1", "a2", "a3")
    bench.gateway.put("bob", "b1")

    async with await bench.consumer.accept_session("ada") as session:
        first = await session.receive()
        rest = await session.receive(10)
        nothing = await session.receive(10, wait=NOW)

    assert session.id == "ada"
    assert (ids(first), ids(rest), nothing) == (["a1"], ["a2", "a3"], [])


async def test_when_a_session_is_held_then_a_second_accept_fails_with_a_lock_error(
    bench: Bench,
) -> None:
    """R40."""
    bench.gateway.put("ada", "a1")
    await bench.consumer.accept_session("ada")

    with pytest.raises(SessionLocked) as caught:
        await bench.consumer.accept_session("ada")

    assert (caught.value.queue, caught.value.session) == ("orders", "ada")


async def test_when_a_held_session_is_released_in_time_then_a_waiting_accept_gets_it(
    bench: Bench,
) -> None:
    """R40."""
    bench.gateway.put("ada", "a1")
    held = await bench.consumer.accept_session("ada")
    waiting = asyncio.create_task(bench.consumer.accept_session("ada", wait=MINUTE))
    await bench.clock.advance(30)

    await held.aclose()
    await bench.clock.advance(30)

    assert (await waiting).id == "ada"


async def test_when_the_next_session_is_accepted_then_it_is_one_that_nobody_holds(
    bench: Bench,
) -> None:
    """R40."""
    bench.gateway.put("ada", "a1")
    bench.gateway.put("bob", "b1")

    first = await bench.consumer.accept_session()
    second = await bench.consumer.accept_session()

    assert first is not None
    assert second is not None
    assert {first.id, second.id} == {"ada", "bob"}


async def test_when_no_session_is_free_then_there_is_none_after_the_wait(bench: Bench) -> None:
    """R40: to find nothing is no error, as with a receive."""
    bench.gateway.put("ada", "a1")
    await bench.consumer.accept_session()

    by_default = asyncio.create_task(bench.consumer.accept_session())
    by_choice = asyncio.create_task(bench.consumer.accept_session(wait=MINUTE))
    await bench.clock.advance(19.9)
    assert not by_default.done()
    await bench.clock.advance(0.1)

    assert by_default.result() is None
    assert not by_choice.done()
    await bench.clock.advance(40)
    assert by_choice.result() is None


async def test_when_the_gateway_has_no_sessions_then_that_is_said(bench: Bench) -> None:
    """R76."""
    gateway = FaultyGateway(bench.clock)
    app = App(gateway, clock=bench.clock, spill=MemorySpill())
    assert not isinstance(gateway, SessionGateway)

    async with app, app.consumer(bench.subscription()) as consumer:
        with pytest.raises(UnsupportedOperation, match="memory gateway does not support sessions"):
            await consumer.accept_session()


async def test_when_acked_twice_then_the_second_is_refused_and_the_session_goes_on(
    bench: Bench,
) -> None:
    """R5, R6."""
    bench.gateway.put("ada", "a1", "a2")
    session = await bench.consumer.accept_session("ada")
    first, second = await session.receive(2)
    await session.ack(first)

    with pytest.raises(InvalidReceipt):
        await session.ack(first)

    await session.ack(second)
    assert bench.gateway.left("ada") == []


async def test_when_many_ack_one_delivery_at_once_then_one_of_them_succeeds(
    bench: Bench,
) -> None:
    """R14."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    [delivery] = await session.receive()

    results = await asyncio.gather(
        *(session.ack(delivery) for _ in range(5)), return_exceptions=True
    )

    assert results.count(None) == 1
    assert sum(isinstance(result, InvalidReceipt) for result in results) == 4


@pytest.mark.parametrize("delay_s", [0, 60])
async def test_when_a_message_is_deferred_then_its_successors_come_again_after_it(
    bench: Bench, delay_s: int
) -> None:
    """R37, R40: left in hand, they could be settled before it."""
    bench.gateway.put("ada", "a1", "a2", "a3", "a4")
    session = await bench.consumer.accept_session("ada")
    first, second, third = await session.receive(3)

    await session.defer(second, timedelta(seconds=delay_s))

    assert bench.gateway.record.actions() == [("a2", Defer(float(delay_s))), ("a3", ABANDON)]
    with pytest.raises(InvalidReceipt):
        await session.ack(third)
    await session.ack(first)
    await bench.clock.advance(delay_s)
    assert ids(await session.receive(10)) == ["a2", "a3", "a4"]


async def test_when_a_message_is_abandoned_then_its_successors_come_again_after_it(
    bench: Bench,
) -> None:
    """R37, R40."""
    bench.gateway.put("ada", "a1", "a2", "a3")
    session = await bench.consumer.accept_session("ada")
    first, *_ = await session.receive(2)

    await session.abandon(first)

    assert ids(await session.receive(10)) == ["a1", "a2", "a3"]


async def test_when_a_message_is_rejected_then_a_copy_is_routed_and_its_successors_stay_in_hand(
    bench: Bench,
) -> None:
    """R25, R27, R28."""
    bench.gateway.put("ada", "a1", "a2")
    session = await bench.consumer.accept_session("ada")
    first, second = await session.receive(2)

    await session.reject(first, RejectionReason.UNACCEPTABLE, "no stock")
    await session.ack(second)

    [copy] = await bench.gateway.admin().peek("dead", max_count=10)
    assert (copy.id, copy.group) == ("a1", "ada")
    assert copy.headers["rejectionMessage"] == "no stock"
    assert bench.gateway.record.actions() == [("a1", ACK), ("a2", ACK)]


async def test_when_a_rejected_message_is_kept_then_its_successors_are_handed_back(
    bench: Bench,
) -> None:
    """T1, R37."""
    bench.gateway.put("ada", "a1", "a2")
    bench.gateway.fail("send", ConnectionFailed("dead", "away"))
    async with bench.app.consumer(bench.subscription(on_routing_failure="keep")) as consumer:
        session = await consumer.accept_session("ada")
        first, _ = await session.receive(2)

        await session.reject(first)

        (_, deferred), abandoned = bench.gateway.record.actions()
        assert isinstance(deferred, Defer)
        assert abandoned == ("a2", ABANDON)


async def test_when_a_delivery_is_not_in_hand_then_nothing_is_routed(bench: Bench) -> None:
    """R6."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    [delivery] = await session.receive()
    await session.ack(delivery)

    with pytest.raises(InvalidReceipt):
        await session.reject(delivery)

    assert await bench.dead_letters() == []


async def test_when_the_lock_went_unheard_then_rejecting_copies_nothing(bench: Bench) -> None:
    """R6, R27, R41: the broker is asked first, and everything in hand is told as lost."""
    bench.gateway.put("ada", "a1", "a2")
    session = await bench.consumer.accept_session("ada")
    first, _ = await session.receive(2)
    bench.gateway.break_lock("ada")

    with pytest.raises(SessionLockLost):
        await session.reject(first)

    assert await bench.dead_letters() == []
    assert bench.lost == ["a1", "a2"]
    with pytest.raises(SessionLockLost):
        await session.ack(first)
    assert bench.lost == ["a1", "a2"]


async def test_when_two_calls_settle_one_delivery_then_the_second_is_refused_before_a_copy(
    bench: Bench,
) -> None:
    """R6, R27."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    [delivery] = await session.receive()
    bench.gateway.slow("send", 1)

    rejecting = asyncio.create_task(session.reject(delivery))
    await bench.clock.settle()
    for other in (session.reject, session.ack):
        with pytest.raises(InvalidReceipt):
            await other(delivery)
    await bench.clock.advance(1)

    assert (await rejecting).destination == "dead"
    assert await bench.dead_letters() == ["a1"]
    assert bench.outcomes == [("a1", "dead-lettered")]


async def test_when_the_lock_cannot_be_renewed_then_our_own_deadline_counts(bench: Bench) -> None:
    """R27: a broker that does not answer has not said no."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    [delivery] = await session.receive()
    bench.gateway.fail("renew", ConnectionFailed("broker", "away"), times=1)

    assert (await session.reject(delivery)).fate is Fate.ROUTED


@pytest.mark.parametrize(
    "fields", [{"renew": False}, {"max_lease": timedelta(seconds=6)}], ids=["no renewal", "idle"]
)
async def test_when_the_copy_takes_longer_than_the_lock_then_the_lock_is_kept(
    bench: Bench, fields: dict[str, Any]
) -> None:
    """R27: another consumer gets nothing of it meanwhile."""
    subscription = bench.subscription(lease=timedelta(seconds=4), **fields)
    bench.gateway.put("ada", "a1")
    async with bench.app.consumer(subscription) as consumer:
        session = await consumer.accept_session("ada")
        [delivery] = await session.receive()
        bench.gateway.slow("send", 20)

        rejecting = asyncio.create_task(session.reject(delivery))
        await bench.clock.advance(20)

        assert (await rejecting).fate is Fate.ROUTED
    assert await bench.dead_letters() == ["a1"]
    assert bench.outcomes == [("a1", "dead-lettered")]
    assert bench.lost == []


async def test_when_the_lock_is_lost_on_the_way_then_the_copy_is_stopped(bench: Bench) -> None:
    """R27, R41, law 3."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    [delivery] = await session.receive()
    bench.gateway.slow("send", 25)
    rejecting = asyncio.create_task(session.reject(delivery))
    await bench.clock.advance(1)
    bench.gateway.break_lock("ada")

    await bench.clock.advance(25)

    with pytest.raises(SessionLockLost):
        await rejecting
    assert await bench.dead_letters() == []
    assert bench.lost == ["a1"]


async def test_when_settled_in_a_session_then_observers_are_told_as_by_the_pump(
    bench: Bench,
) -> None:
    """R23, R24: what is handed back untried is no outcome."""
    bench.gateway.put("ada", "a1", "a2", "a3", "a4")
    session = await bench.consumer.accept_session("ada")
    first, second, third, _ = await session.receive(4)

    await session.ack(first)
    await session.reject(second, "unacceptable", "no")
    await session.defer(third)
    await session.aclose()

    assert bench.outcomes == [("a1", "processed"), ("a2", "dead-lettered"), ("a3", "retrying")]
    assert bench.lost == []


async def test_when_the_broker_refuses_for_now_then_the_caller_may_try_again(
    bench: Bench,
) -> None:
    bench.gateway.put("ada", "a1", "a2")
    session = await bench.consumer.accept_session("ada")
    first, _ = await session.receive(2)
    bench.gateway.refusal = Throttled("broker")
    with pytest.raises(Throttled):
        await session.defer(first)
    bench.gateway.refusal = None

    await session.defer(first)

    assert ids(await session.receive(10)) == ["a1", "a2"]


async def test_when_the_broker_refuses_for_good_then_the_lock_is_lost(bench: Bench) -> None:
    """R41, law 3."""
    bench.gateway.put("ada", "a1", "a2")
    session = await bench.consumer.accept_session("ada")
    first, second = await session.receive(2)
    bench.gateway.refusal = InvalidReceipt("orders", first.receipt)

    with pytest.raises(SessionLockLost) as caught:
        await session.ack(first)

    assert caught.value.__cause__ is bench.gateway.refusal
    bench.gateway.refusal = None
    with pytest.raises(SessionLockLost):
        await session.ack(second)
    assert bench.gateway.left("ada") == ["a1", "a2"]


async def test_when_the_original_cannot_be_removed_then_rejecting_again_copies_nothing_more(
    bench: Bench,
) -> None:
    """R27: as `Consumer.reject`; the first reason stays."""
    bench.gateway.put("ada", "a1", "a2")
    session = await bench.consumer.accept_session("ada")
    [first, _] = await session.receive(2)
    bench.gateway.fail("settle", ConnectionFailed("broker", "away"), times=1)
    with pytest.raises(ConnectionFailed):
        await session.reject(first, detail="no stock")

    routed = await session.reject(first, detail="again")

    assert routed.destination == "dead"
    assert await bench.dead_letters() == ["a1"]
    assert bench.gateway.left("ada") == ["a2"]


@pytest.mark.parametrize("operation", ["receive", "settle", "renew"])
async def test_when_the_broker_fails_then_the_caller_hears_of_it_and_may_try_again(
    bench: Bench, operation: str
) -> None:
    bench.gateway.put("ada", "a1", "a2")
    session = await bench.consumer.accept_session("ada")
    [delivery] = await session.receive()
    work: dict[str, Callable[[], Awaitable[object]]] = {
        "receive": session.receive,
        "settle": lambda: session.ack(delivery),
        "renew": session.renew,
    }

    bench.gateway.fail(operation, ConnectionFailed("broker", "away"), times=1)
    with pytest.raises(ConnectionFailed):
        await work[operation]()

    await work[operation]()
