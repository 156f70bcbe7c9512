"""A process of its own that uses a SQLite inbox: `child_claimer.py PATH claim|hold|complete`."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from handlers import SqliteInbox


async def main(path: str, what: str) -> None:
    owner = str(os.getpid())
    inbox = SqliteInbox(path)
    print("ready", flush=True)
    sys.stdin.readline()
    claim = await inbox.claim("k", owner=owner, now_s=time.time(), lease_s=30.0)
    print(type(claim).__name__, flush=True)
    if what == "complete":
        await inbox.complete("k", owner=owner, now_s=time.time())
        print("completed", flush=True)
    if what != "claim":
        # Until the test kills us: nothing is closed, released or flushed.
        sys.stdin.readline()
    await inbox.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
