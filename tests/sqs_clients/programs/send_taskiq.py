"""Send taskiq's worker its work."""

from __future__ import annotations

import asyncio

from .child_taskiq import add, broker


async def send() -> None:
    await broker.startup()
    for number in range(20):
        await add.kiq(number, number)
    # taskiq's label for a message that is to wait.
    await add.kicker().with_labels(delay=1).kiq(50, 50)
    await broker.shutdown()


asyncio.run(send())
