"""What OnceOnly costs with an inbox: `python -m tests.handlers.measure_postgres_inbox`.

On a server of its own: a claim and a mark one after the other, then handlings side by side.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from handlers import MemoryInbox, OnceOnly, PostgresInbox, SqliteInbox
from pump.clock import SYSTEM_CLOCK
from tests.brokers.postgres_server import FAST, postgres_server

from .support import a_context, run

COUNT, AT_ONCE = 3_000, 100


async def one_by_one(inbox: Any, count: int) -> float:
    """The middle time of a claim and its mark, in milliseconds."""
    times = []
    for number in range(count):
        begun_s = time.perf_counter()
        now_s = SYSTEM_CLOCK.time_s()
        await inbox.claim(f"one {number}", owner="a", now_s=now_s, lease_s=30.0)
        await inbox.complete(f"one {number}", owner="a", now_s=now_s)
        times.append(time.perf_counter() - begun_s)
    return median(times) * 1_000


async def side_by_side(inbox: Any, count: int) -> float:
    """Handlings a second of a handler that does nothing."""
    once, numbers = OnceOnly(inbox), iter(range(count))

    async def handle(_: Any) -> None: ...

    async def work() -> None:
        for number in numbers:
            await run(handle, [once], context=a_context(SYSTEM_CLOCK, message_id=f"side {number}"))

    begun_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return count / (time.perf_counter() - begun_s)


async def in_transactions(inbox: Any, count: int, at_once: int = 6) -> float:
    """Handlings a second with an empty transaction each."""
    once, numbers = OnceOnly(inbox), iter(range(count))

    async def handle(_: Any) -> None:
        async with inbox.transaction():
            pass

    async def work() -> None:
        for number in numbers:
            await run(handle, [once], context=a_context(SYSTEM_CLOCK, message_id=f"tx {number}"))

    begun_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return count / (time.perf_counter() - begun_s)


async def measure(name: str, make: Callable[[], Any]) -> None:
    """One line."""
    inbox = make()
    try:
        await one_by_one(inbox, 50)
        alone_ms = await one_by_one(inbox, 500)
        line = f"{name:32} {alone_ms:8.2f} ms {await side_by_side(inbox, COUNT):9,.0f}/s"
        if hasattr(inbox, "transaction"):
            line += f" {await in_transactions(inbox, 1_000):9,.0f}/s"
        print(line, flush=True)
    finally:
        await inbox.aclose()


def unshared(url: str) -> PostgresInbox:
    """As it was: a statement for each call."""
    inbox = PostgresInbox(url)
    inbox._rows._claims._max_count = inbox._rows._marks._max_count = 1
    return inbox


def main() -> None:
    """Print a table."""
    print(f"{'':32} {'claim + mark':>11} {f'{AT_ONCE} at once':>11} {'transaction':>11}")
    asyncio.run(measure("memory", MemoryInbox))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure("sqlite", lambda: SqliteInbox(Path(folder) / "inbox.db")))
    for kind, settings in (("fsync", ()), ("no fsync", FAST)):
        with postgres_server(settings) as server:
            shared, single = f"{server.url()}?schema=a", f"{server.url()}?schema=b"
            asyncio.run(measure(f"postgres, {kind}", partial(PostgresInbox, shared)))
            asyncio.run(measure(f"postgres, {kind}, unshared", partial(unshared, single)))


if __name__ == "__main__":
    main()
