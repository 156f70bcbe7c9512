"""The contract of an inbox, for the memory and the SQLite one."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handlers import MemoryInbox, SqliteInbox
from pump.errors import ConfigurationError
from pump.stores.inbox import AlreadyDone, Busy, Claimed, Inbox

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S


async def claim(inbox: Inbox, owner: str = "a", *, now_s: float = 0.0, key: str = "k") -> object:
    return await inbox.claim(key, owner=owner, now_s=now_s, lease_s=30.0)


async def test_a_free_key_is_given_to_whoever_asks_first(inbox: Inbox) -> None:
    assert await claim(inbox, "a") == Claimed()
    assert await claim(inbox, "b", now_s=10.0) == Busy(30.0)
    assert await claim(inbox, "b", key="other") == Claimed()


async def test_of_a_hundred_at_once_one_is_given_the_key(inbox: Inbox) -> None:
    claims = await asyncio.gather(*(claim(inbox, str(owner)) for owner in range(100)))

    assert claims.count(Claimed()) == 1
    assert claims.count(Busy(30.0)) == 99


async def test_a_claim_whose_lease_is_over_is_free(inbox: Inbox) -> None:
    await claim(inbox, "a")

    assert await claim(inbox, "b", now_s=29.9) == Busy(30.0)
    assert await claim(inbox, "b", now_s=30.0) == Claimed()


async def test_an_extended_claim_lasts_from_then_on(inbox: Inbox) -> None:
    await claim(inbox, "a")

    assert await inbox.extend("k", owner="a", now_s=20.0, lease_s=30.0)
    assert await claim(inbox, "b", now_s=40.0) == Busy(50.0)


async def test_a_claim_that_somebody_else_took_cannot_be_extended(inbox: Inbox) -> None:
    await claim(inbox, "a")
    await claim(inbox, "b", now_s=30.0)

    assert not await inbox.extend("k", owner="a", now_s=31.0, lease_s=30.0)
    assert await claim(inbox, "c", now_s=59.0) == Busy(60.0)


async def test_a_released_key_is_free_at_once(inbox: Inbox) -> None:
    await claim(inbox, "a")

    await inbox.release("k", owner="a")

    assert await claim(inbox, "b") == Claimed()


async def test_nobody_releases_the_claim_of_another(inbox: Inbox) -> None:
    await claim(inbox, "a")

    await inbox.release("k", owner="b")

    assert await claim(inbox, "b") == Busy(30.0)


async def test_a_key_that_is_done_stays_so_for_its_retention(inbox: Inbox) -> None:
    await claim(inbox, "a")
    await inbox.complete("k", owner="a", now_s=1.0)

    assert await claim(inbox, "b", now_s=DAY_S / 2) == AlreadyDone()
    assert await claim(inbox, "b", now_s=YEAR_S) == Claimed()


async def test_what_is_done_is_not_undone_by_a_release_or_an_extension(inbox: Inbox) -> None:
    """Two runs of one message: the first to finish decides, the other fails afterwards."""
    await claim(inbox, "a")
    await claim(inbox, "b", now_s=30.0)
    await inbox.complete("k", owner="a", now_s=31.0)

    await inbox.release("k", owner="b")
    extended = await inbox.extend("k", owner="b", now_s=32.0, lease_s=30.0)

    assert not extended
    assert await claim(inbox, "c", now_s=1_000.0) == AlreadyDone()


async def test_work_that_was_done_is_marked_even_when_its_claim_was_lost(inbox: Inbox) -> None:
    await claim(inbox, "a")
    await claim(inbox, "b", now_s=30.0)

    await inbox.complete("k", owner="a", now_s=31.0)

    assert await claim(inbox, "c", now_s=1_000.0) == AlreadyDone()


async def test_closing_twice_is_as_good_as_once(inbox: Inbox) -> None:
    await claim(inbox, "a")

    await inbox.aclose()
    await inbox.aclose()


async def test_the_memory_inbox_forgets_the_oldest_past_its_bound() -> None:
    inbox = MemoryInbox(max_count=3)

    for number in range(10):
        await claim(inbox, key=str(number))
        await inbox.complete(str(number), owner="a", now_s=0.0)

    assert len(inbox) == 3
    assert await claim(inbox, key="9") == AlreadyDone()
    assert await claim(inbox, key="6") == Claimed()


async def test_the_memory_inbox_keeps_nothing_that_has_expired() -> None:
    inbox = MemoryInbox(retention=timedelta(seconds=60))

    for second in range(10_000):
        await claim(inbox, key=str(second), now_s=second)
        if second % 2:
            await inbox.complete(str(second), owner="a", now_s=second)

    assert len(inbox) < 100


@pytest.mark.parametrize(
    "make",
    [
        lambda: MemoryInbox(retention=timedelta(0)),
        lambda: MemoryInbox(max_count=0),
        lambda: SqliteInbox(":memory:"),
        lambda: SqliteInbox(""),
        lambda: SqliteInbox(Path("x.db"), retention=5),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_refused(make: Any) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="Inbox"):
        make()
