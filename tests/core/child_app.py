"""A program for the signal tests: says when its handler runs, and how it ended."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from gateways.memory import MemoryGateway
from pump import App, Command, Subscription
from pump.stores.spill import MemorySpill


class Work(Command):
    """Something that takes its time."""

    seconds: float


app = App(MemoryGateway(), spill=MemorySpill())


@app.handler
async def work(request: Work) -> None:
    """Take the time, and say so."""
    print("started", flush=True)
    try:
        await asyncio.sleep(request.seconds)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
    print("finished", flush=True)


async def main(seconds: float) -> None:
    """Post one piece of work from inside, and serve until a signal."""
    posting = asyncio.create_task(post(seconds))
    dispatcher = await app.serve()
    await posting
    stats = dispatcher.performers[0].stats
    print(f"processed {stats.processed} retried {stats.retried}", flush=True)


async def post(seconds: float) -> None:
    """Wait until the app is open and its queue there."""
    while True:
        try:
            await app.post(Work(seconds=seconds))
        except Exception:
            await asyncio.sleep(0.01)
        else:
            return


app.subscribe(
    Subscription(queue="work", request=Work, concurrency=1, drain_timeout=timedelta(seconds=30))
)

if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
