"""A process of its own that meets 25 replays on a shared file: `child_replayer.py PATH HOLDER`."""

from __future__ import annotations

import asyncio
import sys
import time

from pump.crypto import SqliteNonces


async def main(path: str, holder: str) -> None:
    store = SqliteNonces(path)
    print("ready", flush=True)
    sys.stdin.readline()
    now_s = time.time()
    for number in range(25):
        nonce = number.to_bytes(16, "big")
        print(await store.claim(nonce, holder=holder, now_s=now_s, until_s=now_s + 60.0))
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
