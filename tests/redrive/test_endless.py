"""Conditions that take for ever: whoever stops waiting is not kept by them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import attrs
import pytest

from pump import App, ConfigurationError
from pump.redrive.folder import QueueFolder
from pump.redrive.run import prepare
from pump.redrive.selection import DuckdbSelector

from .rig import a_plan

ENDLESS = "(SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = 8) > 5"


@attrs.frozen
class Endless:
    """A selector that runs until it is interrupted, as DuckDB does with such a condition."""

    begun: threading.Event = attrs.field(factory=threading.Event)
    ended: threading.Event = attrs.field(factory=threading.Event)

    def check(self, where: str) -> None:
        self.begun.set()
        self.ended.wait()

    def select(self, snapshot: Path, where: str, limit: int | None, into: Path) -> None:
        raise AssertionError("nothing was checked")

    def interrupt(self) -> None:
        self.ended.set()


async def test_when_duckdb_is_interrupted_then_an_endless_condition_ends() -> None:
    """R78: the thread that runs it keeps nobody from ending."""
    selector = DuckdbSelector()
    checking = asyncio.create_task(asyncio.to_thread(selector.check, ENDLESS))

    while not checking.done():
        # It has no effect before the query runs.
        selector.interrupt()
        await asyncio.wait([checking], timeout=0.05)

    with pytest.raises(ConfigurationError, match=r"(?i)interrupted"):
        await checking


async def test_when_a_redrive_is_cancelled_while_it_selects_then_the_selection_is_interrupted(
    tmp_path: Path,
) -> None:
    """R78: a second Ctrl-C ends it at once."""
    selector = Endless()
    async with App("memory://") as app:
        preparing = asyncio.create_task(
            prepare(
                app.gateway, QueueFolder(tmp_path), a_plan(), selector, stopping=asyncio.Event()
            )
        )
        await asyncio.to_thread(selector.begun.wait)

        preparing.cancel()
        await asyncio.wait([preparing])

    assert preparing.cancelled()
    assert selector.ended.is_set()
