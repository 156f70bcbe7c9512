"""OnceOnly: duplicates, crash windows, failures of the store."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handlers import DuplicateMessage, MemoryInbox, OnceOnly, Retry, SqliteInbox, Timeout
from pump.context import Context
from pump.decide import decide
from pump.errors import ConfigurationError, HandlerTimeout
from pump.outcome import DeferMessage, Reject
from pump.pipeline import Middleware
from pump.processor import CommandProcessor, Event, HandlerRegistry
from pump.stores.inbox import AlreadyDone, Busy, Claimed, Inbox
from pump.subscription import Hybrid
from pump.testing.builders import a_delivery, a_message, a_subscription
from pump.testing.virtual_clock import VirtualClock

from .support import SECOND, Counting, Pay, a_context, run, swallow_everything


async def test_a_message_that_was_handled_is_skipped_the_next_time(inbox: Inbox) -> None:
    handler = Counting()

    results = [await run(handler, [OnceOnly(inbox)]) for _ in range(3)]

    assert results == [1, None, None]
    assert handler.calls == 1


async def test_another_message_or_another_handler_is_another_key(inbox: Inbox) -> None:
    handler = Counting()

    for context in (
        a_context(message_id="m1", handler="shop.Pay"),
        a_context(message_id="m2", handler="shop.Pay"),
        a_context(message_id="m1", handler="shop.Ship"),
    ):
        await run(handler, [OnceOnly(inbox)], context=context)

    assert handler.calls == 3


async def test_a_key_of_the_applications_own_finds_duplicates_across_messages(
    inbox: Inbox,
) -> None:
    handler, once = Counting(), OnceOnly(inbox, key=lambda request, _: request.order)

    for id_, order in (("m1", "A1"), ("m2", "A1"), ("m3", "A2")):
        await run(handler, [once], request=Pay(order), context=a_context(message_id=id_))

    assert handler.calls == 2


async def test_a_scope_outlives_the_renaming_of_the_handler(inbox: Inbox) -> None:
    handler, once = Counting(), OnceOnly(inbox, scope="payments")

    await run(handler, [once], context=a_context(handler="old.Name"))
    await run(handler, [once], context=a_context(handler="new.Name"))

    assert handler.calls == 1


async def test_on_request_a_duplicate_is_raised_and_dead_lettered_at_once() -> None:
    once = OnceOnly(MemoryInbox(), on_duplicate="raise")
    await run(Counting(), [once])

    with pytest.raises(DuplicateMessage) as caught:
        await run(Counting(), [once])

    assert isinstance(decide(caught.value, attempt=1, strategy=Hybrid()), Reject)


@pytest.mark.parametrize("error", [ValueError("x"), DeferMessage()])
async def test_a_handler_that_fails_or_signals_frees_its_key(
    inbox: Inbox, error: Exception
) -> None:
    handler = Counting()
    handler.error = error
    with pytest.raises(type(error)):
        await run(handler, [OnceOnly(inbox)])

    handler.error = None

    assert await run(handler, [OnceOnly(inbox)]) == 2


async def test_a_signal_that_a_middleware_inside_swallowed_is_not_marked_as_done(
    inbox: Inbox,
) -> None:
    """Law 8 brings the message back; the inbox must then let it in."""
    handler = Counting()
    handler.error = DeferMessage()
    with pytest.raises(DeferMessage):
        await run(handler, [OnceOnly(inbox), swallow_everything])

    handler.error = None

    assert await run(handler, [OnceOnly(inbox), swallow_everything]) == 2


async def test_a_cancelled_handler_frees_its_key(inbox: Inbox, clock: VirtualClock) -> None:
    """Law 6, and law 5: what was handed back may be handled elsewhere at once."""

    async def handle(_: Any) -> None:
        await clock.sleep(9)

    task = asyncio.create_task(run(handle, [OnceOnly(inbox)], context=a_context(clock)))
    await clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await run(Counting(), [OnceOnly(inbox)], context=a_context(clock)) == 1


async def test_while_one_run_lasts_a_duplicate_is_deferred_until_its_claim_would_end(
    inbox: Inbox, clock: VirtualClock
) -> None:
    once, handler = OnceOnly(inbox, lease=SECOND * 30), Counting()

    async def slow(_: Any) -> None:
        await clock.sleep(5)
        raise ValueError("failed after all")

    first = asyncio.create_task(run(slow, [once], context=a_context(clock)))
    await clock.advance(2)
    with pytest.raises(DeferMessage) as caught:
        await run(handler, [once], context=a_context(clock))
    await clock.advance(5)

    # Had the duplicate been skipped, its message would be gone and the work undone.
    assert caught.value.delay == timedelta(seconds=28)
    with pytest.raises(ValueError, match="after all"):
        await first
    assert await run(handler, [once], context=a_context(clock)) == 1


async def test_a_handler_that_takes_longer_than_the_lease_keeps_its_claim(
    inbox: Inbox, clock: VirtualClock
) -> None:
    once, handler = OnceOnly(inbox, lease=SECOND * 30), Counting()

    async def slow(_: Any) -> None:
        await clock.sleep(300)

    first = asyncio.create_task(run(slow, [once], context=a_context(clock)))
    for _ in range(29):
        await clock.advance(10)
        with pytest.raises(DeferMessage):
            await run(handler, [once], context=a_context(clock))
    await clock.advance(10)
    await first

    assert await run(handler, [once], context=a_context(clock)) is None
    assert handler.calls == 0
    assert clock.next_due_in_s() is None


async def test_a_crash_between_claim_and_mark_delays_the_message_by_a_lease(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """The process dies while it handles: nothing is released, nothing is marked."""
    async with (
        SqliteInbox(tmp_path / "inbox.db") as dead,
        SqliteInbox(tmp_path / "inbox.db") as alive,
    ):
        once, handler = OnceOnly(alive), Counting()
        await dead.claim("shop.Pay:m1", owner="dead", now_s=clock.time_s(), lease_s=30.0)

        with pytest.raises(DeferMessage):
            await run(handler, [once], context=a_context(clock))
        await clock.advance(30)

        assert await run(handler, [once], context=a_context(clock)) == 1


async def test_when_the_wall_clock_was_set_back_then_a_dead_claim_delays_by_a_lease_at_most(
    inbox: Inbox, clock: VirtualClock
) -> None:
    """T6: the claim was made a day later than it is now, by a process that is gone."""
    once, handler = OnceOnly(inbox), Counting()
    await inbox.claim("shop.Pay:m1", owner="dead", now_s=clock.time_s(), lease_s=60.0)
    clock.step_wall_clock(-86_400)

    with pytest.raises(DeferMessage) as put_off:
        await run(handler, [once], context=a_context(clock))
    assert put_off.value.delay == timedelta(seconds=30)
    await clock.advance(60)

    assert await run(handler, [once], context=a_context(clock)) == 1


async def test_when_the_wall_clock_was_set_back_then_a_living_claim_is_kept(
    inbox: Inbox, clock: VirtualClock
) -> None:
    """R67: its owner extends it, by the clock as it is now."""
    await inbox.claim("k", owner="alive", now_s=clock.time_s(), lease_s=60.0)
    clock.step_wall_clock(-86_400)
    asked: dict[str, Any] = {"owner": "other", "lease_s": 30.0}
    assert isinstance(await inbox.claim("k", now_s=clock.time_s(), **asked), Busy)

    await clock.advance(20)
    assert await inbox.extend("k", owner="alive", now_s=clock.time_s(), lease_s=60.0)
    await clock.advance(50)

    assert isinstance(await inbox.claim("k", now_s=clock.time_s(), **asked), Busy)


async def test_when_the_table_is_of_an_older_release_then_it_is_used_as_it_is(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """Its claims do not say what their lease was: they are bounded by the caller's."""
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as db, db:
        db.execute(
            "CREATE TABLE pump_inbox (key TEXT PRIMARY KEY, owner TEXT NOT NULL,"
            " is_done INTEGER NOT NULL, expires_at_s REAL NOT NULL) WITHOUT ROWID"
        )
        rows = [("done", "old", 1, clock.time_s() + 9e6), ("dead", "old", 0, clock.time_s() + 9e6)]
        db.executemany("INSERT INTO pump_inbox VALUES (?, ?, ?, ?)", rows)

    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        asked: dict[str, Any] = {"owner": "me", "lease_s": 30.0}
        assert isinstance(await inbox.claim("done", now_s=clock.time_s(), **asked), AlreadyDone)
        claim = await inbox.claim("dead", now_s=clock.time_s(), **asked)
        assert claim == Busy(clock.time_s() + 30)
        await clock.advance(30)
        assert isinstance(await inbox.claim("dead", now_s=clock.time_s(), **asked), Claimed)


async def test_a_crash_between_mark_and_acknowledgement_leads_to_a_skip(
    tmp_path: Path, clock: VirtualClock
) -> None:
    handler = Counting()
    async with SqliteInbox(tmp_path / "inbox.db") as before:
        await run(handler, [OnceOnly(before)], context=a_context(clock))

    async with SqliteInbox(tmp_path / "inbox.db") as after:
        await run(handler, [OnceOnly(after)], context=a_context(clock))

    assert handler.calls == 1


async def test_around_a_retry_the_claim_covers_all_tries_and_inside_each_has_its_own(
    inbox: Inbox, clock: VirtualClock
) -> None:
    calls = 0

    async def handle(_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise ValueError

    once, retry = OnceOnly(inbox), Retry(2)
    chains: dict[str, list[Middleware]] = {"m1": [once, retry], "m2": [retry, once]}
    for id_, chain in chains.items():
        context = a_context(clock, message_id=id_)
        task = asyncio.create_task(run(handle, chain, context=context))
        await clock.advance(5)
        await task

    assert calls == 4


async def test_a_handler_that_timed_out_may_be_tried_again(
    inbox: Inbox, clock: VirtualClock
) -> None:
    async def slow(_: Any) -> None:
        await clock.sleep(9)

    task = asyncio.create_task(
        run(slow, [Timeout(SECOND), OnceOnly(inbox)], context=a_context(clock))
    )
    await clock.advance(1)
    with pytest.raises(HandlerTimeout):
        await task

    assert await run(Counting(), [OnceOnly(inbox)], context=a_context(clock)) == 1


class Paid(Event):
    """Has two handlers."""


async def test_when_one_of_two_handlers_failed_then_only_that_one_runs_again(
    inbox: Inbox,
) -> None:
    first, second = Counting(), Counting()
    registry = HandlerRegistry()
    registry.register(Paid, first)
    registry.register(Paid, second)
    processor = CommandProcessor(registry, middleware=[OnceOnly(inbox)])
    delivery = a_delivery(a_message(id="m1"))

    second.error = ValueError("mail server away")
    with pytest.raises(ExceptionGroup):
        await processor.dispatch(Paid(), delivery, a_subscription())
    second.error = None
    await processor.dispatch(Paid(), delivery, a_subscription())

    assert (first.calls, second.calls) == (1, 2)


async def test_a_request_without_a_message_needs_a_key() -> None:
    inside = Context(handler="shop.Pay")

    with pytest.raises(ConfigurationError, match=r"OnceOnly\.key"):
        await run(Counting(), [OnceOnly(MemoryInbox())], context=inside)
    by_order = OnceOnly(MemoryInbox(), key=lambda request, _: request.order)
    assert await run(Counting(), [by_order], context=inside) == 1


@pytest.mark.parametrize("key", ["", None, 7])
async def test_a_key_that_is_no_text_is_a_mistake(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"OnceOnly\.key"):
        await run(Counting(), [OnceOnly(MemoryInbox(), key=lambda *_: key)])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"inbox": {}}, "OnceOnly.inbox"),
        ({"on_duplicate": "ignore"}, "OnceOnly.on_duplicate"),
        ({"lease": timedelta(0)}, "OnceOnly.lease"),
        ({"key": "order"}, "OnceOnly.key"),
        ({"scope": ""}, "OnceOnly.scope"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], field: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        OnceOnly(**{"inbox": MemoryInbox(), **settings})

    assert caught.value.field == field


def test_it_survives_pickling_and_so_does_what_it_raises(tmp_path: Path) -> None:
    once = OnceOnly(SqliteInbox(tmp_path / "inbox.db"), scope="payments")

    copy = pickle.loads(pickle.dumps(once))

    assert (copy.scope, repr(copy.inbox)) == (once.scope, repr(once.inbox))
    assert pickle.loads(pickle.dumps(DuplicateMessage("x"))).detail == "x"
