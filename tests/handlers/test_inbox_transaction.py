"""The work and its mark in one commit, for each inbox that has transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from handlers import MemoryInbox, OnceOnly, Retry
from pump.errors import ConfigurationError, StorageFailed
from pump.outcome import DeferMessage
from pump.testing.virtual_clock import VirtualClock

from .support import a_context, run
from .tills import PAY, Handle, Till


async def test_the_work_and_its_mark_are_committed_together(till: Till) -> None:
    """R80."""
    once = OnceOnly(till.inbox)

    for _ in range(3):
        await run(till.paying(), [once])

    assert await till.payments() == 1


@pytest.mark.parametrize("error", [ValueError("x"), DeferMessage(), asyncio.CancelledError()])
async def test_when_the_block_fails_then_neither_is_there_and_the_message_may_come_again(
    till: Till, error: BaseException
) -> None:
    once = OnceOnly(till.inbox)

    with pytest.raises(type(error)):
        await run(till.paying(then=error), [once])
    assert await till.payments() == 0
    await run(till.paying(), [once])

    assert await till.payments() == 1


async def test_an_error_of_the_blocks_own_statements_stays_the_drivers(
    till: Till,
) -> None:
    async def handle(_: Any) -> None:
        async with till.block() as db:
            await till.execute(db, "INSERT INTO nothing VALUES (1)")

    with pytest.raises(till.database_error, match="nothing"):
        await run(handle, [OnceOnly(till.inbox)])


async def test_a_failure_after_the_commit_does_not_repeat_the_work(
    till: Till,
) -> None:
    pay, once = till.paying(), OnceOnly(till.inbox)

    async def handle(request: Any) -> None:
        await pay(request)
        raise ValueError("the mail did not go out")

    with pytest.raises(ValueError, match="mail"):
        await run(handle, [once])
    await run(handle, [once])

    assert await till.payments() == 1


async def test_a_handler_whose_claim_was_taken_over_is_fenced_off(
    till: Till, clock: VirtualClock
) -> None:
    """R80: the process stood still for longer than the lease; somebody else handles the message."""
    pay, once = till.paying(), OnceOnly(till.inbox)

    async def stalled(request: Any) -> None:
        clock.stand_still(31)
        now_s = clock.time_s()
        await till.inbox.claim("shop.Pay:m1", owner="other", now_s=now_s, lease_s=30.0)
        await pay(request)

    with pytest.raises(DeferMessage) as caught:
        await run(stalled, [once], context=a_context(clock))

    assert caught.value.delay is not None
    assert caught.value.delay.total_seconds() == 30
    assert await till.payments() == 0


async def test_a_handler_whose_message_was_handled_by_another_meanwhile_is_fenced_off(
    till: Till,
) -> None:
    pay, once = till.paying(), OnceOnly(till.inbox)

    async def stalled(request: Any) -> None:
        await till.inbox.complete("shop.Pay:m1", owner="other", now_s=2e9)
        await pay(request)

    with pytest.raises(DeferMessage):
        await run(stalled, [once])
    assert await run(stalled, [once]) is None
    assert await till.payments() == 0


async def test_a_claim_that_ran_out_and_that_nobody_took_still_commits(
    till: Till,
) -> None:
    pay = till.paying()

    async def forgotten(request: Any) -> None:
        await till.forget()
        await pay(request)

    await run(forgotten, [OnceOnly(till.inbox)])

    assert await till.payments() == 1
    assert await run(forgotten, [OnceOnly(till.inbox)]) is None


async def test_inside_a_retry_a_rolled_back_block_is_run_again(
    till: Till, clock: VirtualClock
) -> None:
    tries = 0

    async def handle(_: Any) -> None:
        nonlocal tries
        tries += 1
        async with till.block() as db:
            await till.execute(db, PAY)
            if tries < 3:
                raise ConnectionError

    task = asyncio.create_task(
        run(handle, [OnceOnly(till.inbox), Retry(3)], context=a_context(clock))
    )
    while not task.done():
        await asyncio.wait([task], timeout=0.02)
        await clock.advance(1)
    await task

    assert await till.payments() == 1


async def test_a_block_that_commits_by_itself_is_told_not_to(till: Till) -> None:
    async def handle(_: Any) -> None:
        async with till.block() as db:
            await till.execute(db, PAY)
            await db.commit()

    with pytest.raises(StorageFailed, match="ended the transaction itself"):
        await run(handle, [OnceOnly(till.inbox)])


async def test_a_second_transaction_in_one_handling_is_a_mistake(
    till: Till,
) -> None:
    pay = till.paying()

    async def handle(request: Any) -> None:
        await pay(request)
        await pay(request)

    with pytest.raises(ConfigurationError, match="a handling; join the two"):
        await run(handle, [OnceOnly(till.inbox)])
    assert await till.payments() == 1


async def test_a_once_only_request_sent_inside_the_block_is_an_error_and_no_deadlock(
    till: Till,
) -> None:
    if not till.takes_turns:
        return

    async def handle(_: Any) -> None:
        async with till.block(), asyncio.TaskGroup() as tasks:
            inner = a_context(message_id="m2")
            tasks.create_task(run(till.paying(), [OnceOnly(till.inbox)], context=inner))

    with pytest.raises(ExceptionGroup) as caught:
        await run(handle, [OnceOnly(till.inbox)])

    assert caught.value.subgroup(StorageFailed) is not None


async def test_outside_of_a_once_only_handler_it_says_what_is_missing(
    till: Till,
) -> None:
    for chain in ([], [OnceOnly(MemoryInbox())]):
        with pytest.raises(ConfigurationError, match="behind OnceOnly"):
            await run(till.paying(), chain)


async def test_many_handlers_take_turns(till: Till) -> None:
    once, pay = OnceOnly(till.inbox), till.paying()

    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(run(pay, [once], context=a_context(message_id=f"m{number}")))

    assert await till.payments() == 50


@pytest.mark.parametrize("turns", range(0, 40, 2))
async def test_cancelled_at_any_moment_it_leaves_both_or_neither(
    till: Till, clock: VirtualClock, turns: int
) -> None:
    """Law 6, and the file is usable afterwards."""
    once, pay = OnceOnly(till.inbox), till.paying()
    task = asyncio.create_task(run(pay, [once], context=a_context(clock)))
    for _ in range(turns):
        await asyncio.to_thread(int)
    task.cancel()
    await asyncio.wait([task])

    await clock.advance(60)
    await run_when_free(pay, once, clock)

    assert await till.payments() == 1


async def run_when_free(pay: Handle, once: OnceOnly, clock: VirtualClock) -> None:
    """A server may take a moment to see that a connection is gone."""
    while True:
        try:
            await run(pay, [once], context=a_context(clock))
        except DeferMessage:
            continue
        return
