"""Fixtures of the handlers' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handlers import MemoryInbox, SqliteInbox
from pump.stores.inbox import Inbox
from pump.testing.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Inbox]:
    made: Inbox = MemoryInbox() if request.param == "memory" else SqliteInbox(tmp_path / "inbox.db")
    yield made
    await made.aclose()


@pytest.fixture
async def sqlite_inbox(tmp_path: Path) -> AsyncIterator[SqliteInbox]:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        yield inbox
