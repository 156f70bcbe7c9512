"""Fixtures of the handlers' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handlers import MemoryInbox, SqliteInbox
from pump.stores.inbox import Inbox
from pump.testing.virtual_clock import VirtualClock

from .tills import AlchemyPostgresTill, AlchemySqliteTill, PostgresTill, SqliteTill, Till, opened


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


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
async def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Inbox]:
    if request.param == "memory":
        yield MemoryInbox()
        return
    async with opened(till_of(request.param, request, tmp_path)) as made:
        yield made.inbox


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
