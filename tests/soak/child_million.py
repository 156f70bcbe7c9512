"""A million messages through the memory gateway; prints the peak memory on the way, in KiB.

python -m tests.soak.child_million
"""

from __future__ import annotations

import asyncio
import resource

from gateways.memory import MemoryGateway
from pump import App, Command, Subscription

ROUNDS, ROUND = 10, 100_000


class Ping(Command):
    number: int


async def main() -> None:
    """Send and handle in rounds, so that the queue itself stays short."""
    app = App(MemoryGateway())
    handled = 0
    round_done = asyncio.Event()

    @app.handler
    async def handle(ping: Ping) -> None:
        nonlocal handled
        handled += 1
        if handled % ROUND == 0:
            round_done.set()

    app.subscribe(Subscription(queue="pings", request=Ping, dead_letter_queue="dead"))
    async with app, app.pumping():
        for _ in range(ROUNDS):
            round_done.clear()
            for start in range(0, ROUND, 1_000):
                await app.post_all([Ping(number) for number in range(start, start + 1_000)])
            await round_done.wait()
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
