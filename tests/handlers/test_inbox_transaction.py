"""SqliteInbox.transaction: the work and its mark in one commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import aiosqlite
import pytest

from handlers import MemoryInbox, OnceOnly, Retry, SqliteInbox
from pump.errors import ConfigurationError, StorageFailed
from pump.outcome import DeferMessage
from pump.testing.virtual_clock import VirtualClock

from .support import a_context, run

MAKE = "CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY, order_id TEXT)"
PAY = "INSERT INTO payments (order_id) VALUES ('A1')"
Handle = Callable[[Any], Any]


async def payments(inbox: SqliteInbox) -> int:
    async with aiosqlite.connect(inbox._path) as db:
        await db.execute(MAKE)
        async with db.execute("SELECT count(*) FROM payments") as cursor:
            row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def paying(inbox: SqliteInbox, *, then: BaseException | None = None) -> Handle:
    async def handle(_: Any) -> None:
        async with inbox.transaction() as db:
            await db.execute(MAKE)
            await db.execute(PAY)
            if then is not None:
                raise then

    return handle


async def test_the_work_and_its_mark_are_committed_together(sqlite_inbox: SqliteInbox) -> None:
    once = OnceOnly(sqlite_inbox)

    for _ in range(3):
        await run(paying(sqlite_inbox), [once])

    assert await payments(sqlite_inbox) == 1


@pytest.mark.parametrize("error", [ValueError("x"), DeferMessage(), asyncio.CancelledError()])
async def test_when_the_block_fails_then_neither_is_there_and_the_message_may_come_again(
    sqlite_inbox: SqliteInbox, error: BaseException
) -> None:
    once = OnceOnly(sqlite_inbox)

    with pytest.raises(type(error)):
        await run(paying(sqlite_inbox, then=error), [once])
    assert await payments(sqlite_inbox) == 0
    await run(paying(sqlite_inbox), [once])

    assert await payments(sqlite_inbox) == 1


async def test_an_error_of_the_blocks_own_statements_stays_sqlites(
    sqlite_inbox: SqliteInbox,
) -> None:
    async def handle(_: Any) -> None:
        async with sqlite_inbox.transaction() as db:
            await db.execute("INSERT INTO nothing VALUES (1)")

    with pytest.raises(sqlite3.OperationalError, match="nothing"):
        await run(handle, [OnceOnly(sqlite_inbox)])


async def test_a_failure_after_the_commit_does_not_repeat_the_work(
    sqlite_inbox: SqliteInbox,
) -> None:
    pay, once = paying(sqlite_inbox), OnceOnly(sqlite_inbox)

    async def handle(request: Any) -> None:
        await pay(request)
        raise ValueError("the mail did not go out")

    with pytest.raises(ValueError, match="mail"):
        await run(handle, [once])
    await run(handle, [once])

    assert await payments(sqlite_inbox) == 1


async def test_a_handler_whose_claim_was_taken_over_is_fenced_off(
    sqlite_inbox: SqliteInbox, clock: VirtualClock
) -> None:
    """The process stood still for longer than the lease; somebody else handles the message."""
    pay, once = paying(sqlite_inbox), OnceOnly(sqlite_inbox)

    async def stalled(request: Any) -> None:
        clock.stand_still(31)
        now_s = clock.time_s()
        await sqlite_inbox.claim("shop.Pay:m1", owner="other", now_s=now_s, lease_s=30.0)
        await pay(request)

    with pytest.raises(DeferMessage) as caught:
        await run(stalled, [once], context=a_context(clock))

    assert caught.value.delay is not None
    assert caught.value.delay.total_seconds() == 30
    assert await payments(sqlite_inbox) == 0


async def test_a_handler_whose_message_was_handled_by_another_meanwhile_is_fenced_off(
    sqlite_inbox: SqliteInbox,
) -> None:
    pay, once = paying(sqlite_inbox), OnceOnly(sqlite_inbox)

    async def stalled(request: Any) -> None:
        await sqlite_inbox.complete("shop.Pay:m1", owner="other", now_s=2e9)
        await pay(request)

    with pytest.raises(DeferMessage):
        await run(stalled, [once])
    assert await run(stalled, [once]) is None
    assert await payments(sqlite_inbox) == 0


async def test_a_claim_that_ran_out_and_that_nobody_took_still_commits(
    sqlite_inbox: SqliteInbox,
) -> None:
    pay = paying(sqlite_inbox)

    async def forgotten(request: Any) -> None:
        async with aiosqlite.connect(sqlite_inbox._path) as db:
            await db.execute("DELETE FROM pump_inbox")
            await db.commit()
        await pay(request)

    await run(forgotten, [OnceOnly(sqlite_inbox)])

    assert await payments(sqlite_inbox) == 1
    assert await run(forgotten, [OnceOnly(sqlite_inbox)]) is None


async def test_inside_a_retry_a_rolled_back_block_is_run_again(
    sqlite_inbox: SqliteInbox, clock: VirtualClock
) -> None:
    tries = 0

    async def handle(_: Any) -> None:
        nonlocal tries
        tries += 1
        async with sqlite_inbox.transaction() as db:
            await db.execute(MAKE)
            await db.execute(PAY)
            if tries < 3:
                raise ConnectionError

    task = asyncio.create_task(
        run(handle, [OnceOnly(sqlite_inbox), Retry(3)], context=a_context(clock))
    )
    await clock.advance(5)
    await task

    assert await payments(sqlite_inbox) == 1


async def test_a_block_that_commits_by_itself_is_told_not_to(sqlite_inbox: SqliteInbox) -> None:
    async def handle(_: Any) -> None:
        async with sqlite_inbox.transaction() as db:
            await db.execute(MAKE)
            await db.commit()

    with pytest.raises(StorageFailed, match="ended the transaction itself"):
        await run(handle, [OnceOnly(sqlite_inbox)])


async def test_a_second_transaction_in_one_handling_is_a_mistake(
    sqlite_inbox: SqliteInbox,
) -> None:
    pay = paying(sqlite_inbox)

    async def handle(request: Any) -> None:
        await pay(request)
        await pay(request)

    with pytest.raises(ConfigurationError, match="one transaction a handling"):
        await run(handle, [OnceOnly(sqlite_inbox)])
    assert await payments(sqlite_inbox) == 1


async def test_a_once_only_request_sent_inside_the_block_is_an_error_and_no_deadlock(
    sqlite_inbox: SqliteInbox,
) -> None:
    async def handle(_: Any) -> None:
        async with sqlite_inbox.transaction(), asyncio.TaskGroup() as tasks:
            inner = a_context(message_id="m2")
            tasks.create_task(run(paying(sqlite_inbox), [OnceOnly(sqlite_inbox)], context=inner))

    with pytest.raises(ExceptionGroup) as caught:
        await run(handle, [OnceOnly(sqlite_inbox)])

    assert caught.value.subgroup(StorageFailed) is not None


async def test_outside_of_a_once_only_handler_it_says_what_is_missing(
    sqlite_inbox: SqliteInbox,
) -> None:
    for chain in ([], [OnceOnly(MemoryInbox())]):
        with pytest.raises(ConfigurationError, match="behind OnceOnly"):
            await run(paying(sqlite_inbox), chain)


async def test_many_handlers_take_turns(sqlite_inbox: SqliteInbox) -> None:
    once, pay = OnceOnly(sqlite_inbox), paying(sqlite_inbox)

    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(run(pay, [once], context=a_context(message_id=f"m{number}")))

    assert await payments(sqlite_inbox) == 50


@pytest.mark.parametrize("turns", range(0, 40, 2))
async def test_cancelled_at_any_moment_it_leaves_both_or_neither(
    sqlite_inbox: SqliteInbox, clock: VirtualClock, turns: int
) -> None:
    """Law 6, and the file is usable afterwards."""
    once, pay = OnceOnly(sqlite_inbox), paying(sqlite_inbox)
    task = asyncio.create_task(run(pay, [once], context=a_context(clock)))
    for _ in range(turns):
        await asyncio.to_thread(int)
    task.cancel()
    await asyncio.wait([task])

    await clock.advance(60)
    await run(pay, [once], context=a_context(clock))

    assert await payments(sqlite_inbox) == 1
