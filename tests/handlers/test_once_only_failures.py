"""OnceOnly when its store fails, or somebody takes its claim over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from handlers import MemoryInbox, OnceOnly
from pump.errors import StorageFailed
from pump.outcome import DeferMessage
from pump.stores.inbox import Claim, Inbox
from pump.testing.virtual_clock import VirtualClock

from .support import Counting, a_context, raising, run


class Broken(MemoryInbox):
    """An inbox of which some operations fail."""

    def __init__(self, *operations: str) -> None:
        super().__init__()
        self.operations = operations

    def fail(self, operation: str) -> None:
        if operation in self.operations:
            raise StorageFailed("inbox.db", "the disk is full")

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        self.fail("claim")
        return await super().claim(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        self.fail("extend")
        return await super().extend(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        self.fail("complete")
        await super().complete(key, owner=owner, now_s=now_s)

    async def release(self, key: str, *, owner: str) -> None:
        self.fail("release")
        await super().release(key, owner=owner)


async def test_without_a_claim_the_handler_does_not_run() -> None:
    handler = Counting()

    with pytest.raises(StorageFailed):
        await run(handler, [OnceOnly(Broken("claim", "release"))])

    assert handler.calls == 0


async def test_work_whose_mark_cannot_be_written_is_done_and_an_error_says_so() -> None:
    """To fail instead would repeat the work for certain; a duplicate may never come."""
    with capture_logs() as lines:
        result = await run(Counting(), [OnceOnly(Broken("complete"))])

    assert result == 1
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("completion.unrecorded", "error")
    ]


@pytest.mark.parametrize("error", [ValueError("x"), DeferMessage(), asyncio.CancelledError()])
async def test_a_release_that_fails_does_not_hide_how_handling_ended(
    error: BaseException,
) -> None:
    """Laws 6 and 8."""
    with capture_logs() as lines, pytest.raises(type(error)) as caught:
        await run(raising(error), [OnceOnly(Broken("release"))])

    assert caught.value is error
    assert [line["event"] for line in lines] == ["claim.release_failed"]


async def test_an_extension_that_fails_is_followed_by_the_next(clock: VirtualClock) -> None:
    inbox = Broken("extend")

    async def slow(_: Any) -> None:
        await clock.sleep(50)

    with capture_logs() as lines:
        task = asyncio.create_task(run(slow, [OnceOnly(inbox)], context=a_context(clock)))
        await clock.advance(11)
        inbox.operations = ()
        await clock.advance(30)
        with pytest.raises(DeferMessage):
            await run(Counting(), [OnceOnly(inbox)], context=a_context(clock))
        await clock.advance(9)
        await task

    assert [line["event"] for line in lines] == ["claim.extension_failed", "duplicate.deferred"]


async def test_a_claim_that_was_taken_over_is_noticed_and_the_work_still_marked(
    inbox: Inbox, clock: VirtualClock
) -> None:
    async def slow(_: Any) -> None:
        await clock.sleep(15)

    with capture_logs() as lines:
        task = asyncio.create_task(run(slow, [OnceOnly(inbox)], context=a_context(clock)))
        await clock.advance(1)
        later_s = clock.time_s() + 60
        await inbox.claim("shop.Pay:m1", owner="thief", now_s=later_s, lease_s=30.0)
        await clock.advance(14)
        await task

    assert [line["event"] for line in lines] == ["claim.lost"]
    assert await run(Counting(), [OnceOnly(inbox)], context=a_context(clock)) is None
