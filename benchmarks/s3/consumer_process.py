"""Consumers in a process of their own: open, say so, and consume from a line on.

python -m benchmarks.s3.consumer_process ENDPOINT log 100 0 1

Prints how many messages are done whenever that has changed, until standard input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys

from pump import event_loop

from .designs import Place, consuming

_LOOK_S = 0.01


async def main(place: Place) -> None:
    """Consume from the first line on standard input to its end."""
    started, ended = asyncio.Event(), asyncio.Event()

    def heard() -> None:
        # Not in a thread: one that waits for input would outlive consumers that break.
        (started if os.read(0, 100) else ended).set()

    async def go() -> None:
        print("ready", flush=True)
        await started.wait()

    asyncio.get_running_loop().add_reader(0, heard)
    async with consuming(place, go) as done:
        told = 0
        while not ended.is_set():
            if (now := done()) != told:
                told = now
                print(told, flush=True)
            await asyncio.sleep(_LOOK_S)
        asyncio.get_running_loop().remove_reader(0)
    if done() != told:
        print(done(), flush=True)


if __name__ == "__main__":
    endpoint, design, *numbers = sys.argv[1:]
    consumers, process, processes = map(int, numbers)
    event_loop.run(
        main(
            Place(
                endpoint=endpoint,
                design=design,
                consumers=consumers,
                process=process,
                processes=processes,
            )
        )
    )
