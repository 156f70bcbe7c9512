"""Fixtures of the handlers' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handlers import MemoryInbox, SqliteInbox
from pump.clock import SYSTEM_CLOCK
from pump.stores.inbox import Claim, Inbox
from pump.testing.virtual_clock import VirtualClock

from .tills import AlchemyPostgresTill, AlchemySqliteTill, PostgresTill, SqliteTill, Till, opened

_LOOK_S = 0.001


class StoreClock(VirtualClock):
    """Time stands still while a store waits for its database."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Until the end of the block."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def _outwait_others(self) -> bool:
        if not self.under_way:
            return False
        await SYSTEM_CLOCK.sleep(_LOOK_S)
        return True


class TimedInbox:
    """An inbox whose calls hold the time, however long its database takes."""

    def __init__(self, inbox: Inbox, clock: StoreClock) -> None:
        self._inbox = inbox
        self._clock = clock

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        with self._clock.standing_still():
            return await self._inbox.claim(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        with self._clock.standing_still():
            return await self._inbox.extend(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        with self._clock.standing_still():
            await self._inbox.complete(key, owner=owner, now_s=now_s)

    async def release(self, key: str, *, owner: str) -> None:
        with self._clock.standing_still():
            await self._inbox.release(key, owner=owner)

    async def aclose(self) -> None:
        await self._inbox.aclose()


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock()


INBOXES = [
    "memory",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.broker),
    pytest.param("sqlalchemy psycopg", marks=pytest.mark.broker),
    pytest.param("sqlalchemy asyncpg", marks=pytest.mark.broker),
    "sqlalchemy sqlite",
]
TILLS = [each for each in INBOXES if each != "memory"]


@pytest.fixture(params=INBOXES)
async def inbox(
    request: pytest.FixtureRequest, tmp_path: Path, clock: StoreClock
) -> AsyncIterator[Inbox]:
    if request.param == "memory":
        yield MemoryInbox()
        return
    async with opened(till_of(request.param, request, tmp_path)) as made:
        yield TimedInbox(made.inbox, clock)


@pytest.fixture(params=TILLS)
async def till(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Till]:
    async with opened(till_of(request.param, request, tmp_path)) as made:
        yield made


def till_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Till:
    match kind.split():
        case ["sqlite"]:
            return SqliteTill(folder / "inbox.db")
        case ["sqlalchemy", "sqlite"]:
            return AlchemySqliteTill(folder / "inbox.db")
        case ["postgres"]:
            return PostgresTill(request.getfixturevalue("postgres_schema"), time_of="caller")
        case _:
            driver = kind.split()[1]
            return AlchemyPostgresTill(request.getfixturevalue("postgres_schema"), driver)


@pytest.fixture
async def sqlite_inbox(tmp_path: Path) -> AsyncIterator[SqliteInbox]:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        yield inbox
