"""The embedded queues of a folder, used from the test's own process: nothing to start."""

import asyncio
from pathlib import Path

from pump import App, MakeChannels, Message
from pump.subscription import QueueSpec


def send(folder: Path, *bodies: str, queue: str) -> None:
    async def work() -> None:
        async with _app(folder) as app:
            await app.admin.ensure(QueueSpec(name=queue), MakeChannels.CREATE)
            await app.post_all([Message(body=body.encode()) for body in bodies], queue=queue)

    asyncio.run(work())


def visible_count(folder: Path, queue: str) -> int:
    async def work() -> int:
        async with _app(folder) as app:
            [stats] = [each for each in await app.admin.queues() if each.name == queue]
            return stats.visible

    return asyncio.run(work())


def rejections(folder: Path, queue: str) -> list[str]:
    """Why each message was rejected."""

    async def work() -> list[str]:
        async with _app(folder) as app:
            peeked = await app.admin.peek(queue)
            return [message.headers["rejectionMessage"] for message in peeked]

    return asyncio.run(work())


def _app(folder: Path) -> App:
    return App(f"local://{folder}/.pumphouse/queues")
