"""The lock of a session: renewed, released, or lost and known to be (R40, R41)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pump.errors import (
    ConnectionFailed,
    PumpError,
    SessionLocked,
    SessionLockLost,
    Throttled,
)

from .session_bench import MINUTE, Bench, every_call, ids, keepers, open_bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with open_bench() as bench:
        yield bench


async def test_when_a_session_is_open_then_its_lock_is_renewed_for_as_long_as_it_takes(
    bench: Bench,
) -> None:
    """R40."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    [delivery] = await session.receive()

    await bench.clock.advance(300)

    assert bench.gateway.record.calls["renew"] == 20
    with pytest.raises(SessionLocked):
        await bench.consumer.accept_session("ada")
    await session.ack(delivery)
    assert bench.gateway.left("ada") == []


async def test_when_a_session_is_closed_then_it_is_free_and_what_was_not_settled_comes_again(
    bench: Bench,
) -> None:
    """R40."""
    bench.gateway.put("ada", "a1", "a2", "a3")
    async with await bench.consumer.accept_session("ada") as session:
        first, _ = await session.receive(2)
        await session.ack(first)

    async with await bench.consumer.accept_session("ada") as again:
        assert ids(await again.receive(10)) == ["a2", "a3"]
    assert keepers() == []


async def test_when_a_session_is_closed_twice_then_it_is_released_once(bench: Bench) -> None:
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")

    await session.aclose()
    await session.aclose()

    assert bench.gateway.record.calls["release"] == 1


async def test_when_a_session_is_closed_then_every_call_says_so(bench: Bench) -> None:
    bench.gateway.put("ada", "a1")
    async with await bench.consumer.accept_session("ada") as session:
        [delivery] = await session.receive()

    for call in every_call(session, delivery).values():
        with pytest.raises(PumpError, match="'ada' is closed"):
            await call()


async def test_when_a_lock_runs_out_then_another_gets_the_session_and_the_first_is_told(
    bench: Bench,
) -> None:
    """R41, law 3: nothing is settled, or routed, by who lost it."""
    bench.gateway.put("ada", "a1")
    async with bench.app.consumer(bench.subscription(renew=False)) as idle:
        first = await idle.accept_session("ada")
        [lost] = await first.receive()
        await bench.clock.advance(29)
        with pytest.raises(SessionLocked):
            await bench.consumer.accept_session("ada")

        await bench.clock.advance(1)
        second = await bench.consumer.accept_session("ada")

        for call in every_call(first, lost).values():
            with pytest.raises(SessionLockLost) as caught:
                await call()
            assert (caught.value.queue, caught.value.session) == ("orders", "ada")
        [again] = await second.receive()
        assert (again.message.id, again.attempt) == ("a1", 2)
        assert bench.gateway.record.settled == []
        assert await bench.dead_letters() == []


async def test_when_nobody_calls_for_max_lease_then_the_lock_is_left_to_run_out(
    bench: Bench,
) -> None:
    """R41."""
    bench.gateway.put("ada", "a1")
    async with bench.app.consumer(bench.subscription(max_lease=MINUTE)) as idle:
        session = await idle.accept_session("ada")

        await bench.clock.advance(90)

        await bench.consumer.accept_session("ada")
        with pytest.raises(SessionLockLost):
            await session.receive()


async def test_when_somebody_calls_now_and_then_then_max_lease_does_not_end_the_session(
    bench: Bench,
) -> None:
    """R40, R41: it is idleness that ends it. A receive that waits is a call."""
    bench.gateway.put("ada")
    async with bench.app.consumer(bench.subscription(max_lease=MINUTE)) as busy:
        session = await busy.accept_session("ada")
        for _ in range(5):
            receiving = asyncio.create_task(session.receive(wait=timedelta(minutes=5)))
            await bench.clock.advance(350)
            await receiving

        with pytest.raises(SessionLocked):
            await bench.consumer.accept_session("ada")


async def test_when_an_idle_session_is_called_in_time_then_it_is_renewed_again(
    bench: Bench,
) -> None:
    """R41."""
    bench.gateway.put("ada", "a1")
    async with bench.app.consumer(bench.subscription(max_lease=MINUTE)) as busy:
        session = await busy.accept_session("ada")
        await bench.clock.advance(70)

        [delivery] = await session.receive()
        await bench.clock.advance(30)

        await session.ack(delivery)


async def test_when_nothing_renews_by_itself_then_the_caller_can(bench: Bench) -> None:
    """R40."""
    bench.gateway.put("ada", "a1")
    async with bench.app.consumer(bench.subscription(renew=False)) as careful:
        session = await careful.accept_session("ada")
        for _ in range(5):
            await bench.clock.advance(29)
            await session.renew()

        [delivery] = await session.receive()
        await session.ack(delivery)


async def test_when_the_caller_renews_at_the_moment_it_is_due_then_the_lock_is_kept_all_the_same(
    bench: Bench,
) -> None:
    """R40: that the second of two renewals gains nothing does not mean that no more can."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    renewing: list[asyncio.Task[None]] = []
    bench.clock.call_later(15, lambda: renewing.append(asyncio.create_task(session.renew())))

    await bench.clock.advance(100)

    assert [task.exception() for task in renewing] == [None]
    assert await session.receive()


async def test_when_renewing_fails_then_it_is_tried_again_and_nothing_is_lost(
    bench: Bench,
) -> None:
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    bench.gateway.fail("renew", ConnectionFailed("broker", "away"))
    await bench.clock.advance(25)
    bench.gateway.heal("renew")

    await bench.clock.advance(100)

    assert await session.receive()


async def test_when_renewing_fails_for_too_long_then_the_lock_counts_as_lost(
    bench: Bench,
) -> None:
    """R41, law 3: nobody can prove that it is still ours."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    bench.gateway.fail("renew", Throttled("broker"))

    await bench.clock.advance(30)

    bench.gateway.heal("renew")
    with pytest.raises(SessionLockLost):
        await session.receive()
    tried = bench.gateway.record.calls["renew"]
    assert 5 < tried < 20


async def test_when_a_renewal_is_never_answered_then_it_is_made_again(bench: Bench) -> None:
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    bench.gateway.hang("renew")
    await bench.clock.advance(16)
    bench.gateway.heal("renew")

    await bench.clock.advance(100)

    assert await session.receive()


async def test_when_the_broker_says_that_the_lock_is_lost_then_so_does_the_next_call(
    bench: Bench,
) -> None:
    """R41."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    bench.gateway.break_lock("ada")
    await bench.clock.advance(15)

    with pytest.raises(SessionLockLost):
        await session.receive()
    await bench.clock.advance(100)

    assert bench.gateway.record.calls["renew"] == 1
    assert keepers() == []


async def test_when_the_provider_allows_no_more_then_the_lock_is_lost_at_its_end(
    bench: Bench,
) -> None:
    """R41."""
    bench.gateway.ceiling_s = 40
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")

    await bench.clock.advance(39)
    [delivery] = await session.receive()
    await bench.clock.advance(1)

    with pytest.raises(SessionLockLost):
        await session.ack(delivery)
    assert bench.gateway.record.calls["renew"] == 2


async def test_when_a_lock_does_not_run_out_then_it_is_not_renewed(bench: Bench) -> None:
    bench.gateway.locks_end = False
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")

    await bench.clock.advance(1_000)

    assert bench.gateway.record.calls["renew"] == 0
    assert await session.receive()


async def test_when_the_lock_is_lost_during_a_receive_then_nothing_is_returned(
    bench: Bench,
) -> None:
    """R41, law 3."""
    bench.gateway.put("ada")
    session = await bench.consumer.accept_session("ada")
    receiving = asyncio.create_task(session.receive(wait=MINUTE))
    await bench.clock.settle()
    bench.gateway.put("ada", "a1")
    bench.gateway.fail("renew", ConnectionFailed("broker", "away"))

    await bench.clock.advance(60)

    with pytest.raises(SessionLockLost):
        await receiving


async def test_when_the_body_is_cancelled_then_the_session_is_released(bench: Bench) -> None:
    """R40, law 6."""
    bench.gateway.put("ada", "a1")

    async def work() -> None:
        async with await bench.consumer.accept_session("ada") as session:
            await session.receive()
            await session.receive(wait=MINUTE)

    working = asyncio.create_task(work())
    await bench.clock.settle()
    working.cancel()
    await asyncio.wait([working])

    assert working.cancelled()
    again = await bench.consumer.accept_session("ada")
    assert ids(await again.receive()) == ["a1"]


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
async def test_when_the_broker_cannot_be_told_then_closing_leaves_the_lock_to_run_out(
    bench: Bench, trouble: str
) -> None:
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    if trouble == "fails":
        bench.gateway.fail("release", ConnectionFailed("broker", "away"))
    else:
        bench.gateway.hang("release")

    closing = asyncio.create_task(session.aclose())
    await bench.clock.advance(30)

    assert closing.done()
    assert closing.exception() is None
    bench.gateway.heal("release")
    assert (await bench.consumer.accept_session("ada")).id == "ada"


async def test_when_closing_is_cancelled_then_that_is_not_swallowed(bench: Bench) -> None:
    """Law 6."""
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    bench.gateway.hang("release")

    closing = asyncio.create_task(session.aclose())
    await bench.clock.settle()
    closing.cancel()
    await asyncio.wait([closing])

    assert closing.cancelled()
    assert keepers() == []


async def test_when_the_consumer_is_closed_then_its_open_sessions_are_too(bench: Bench) -> None:
    """R40."""
    bench.gateway.put("ada", "a1")
    bench.gateway.put("bob", "b1")
    async with bench.app.consumer(bench.subscription()) as consumer:
        await consumer.accept_session("ada")
        await consumer.accept_session("bob")
        assert len(keepers()) == 2

    assert keepers() == []
    await bench.consumer.accept_session("ada")
    await bench.consumer.accept_session("bob")


async def test_when_renewing_breaks_by_a_defect_then_closing_says_so_and_still_releases(
    bench: Bench,
) -> None:
    bench.gateway.put("ada", "a1")
    session = await bench.consumer.accept_session("ada")
    bench.gateway.fail("renew", ZeroDivisionError("a defect"))
    await bench.clock.advance(15)

    with pytest.raises(ZeroDivisionError):
        await session.aclose()

    assert (await bench.consumer.accept_session("ada")).id == "ada"


async def test_when_one_session_fails_to_close_then_the_consumer_closes_the_others(
    bench: Bench,
) -> None:
    """R40: what stays open would be renewed for as long as the process lives."""
    bench.gateway.put("ada", "a1")
    bench.gateway.put("bob", "b1")
    async with bench.app.consumer(bench.subscription()) as consumer:
        await consumer.accept_session("ada")
        await consumer.accept_session("bob")
        bench.gateway.fail("renew", ZeroDivisionError("a defect"))
        await bench.clock.advance(15)

        with pytest.raises(ZeroDivisionError):
            await consumer.aclose()

    assert bench.gateway.record.calls["release"] == 2
