"""The caretaker of queues in objects: makes, checks, lists and empties them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pump.errors import QueueNotFound
from pump.message import Message
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from .queues import Queues

MAX_LOOKS = 8
"""How many queues are looked into at once."""


class S3Admin:
    """Looks after the queues below a gateway's prefix."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """A queue that exists takes on what is asked for, unless only its name is: all but the
        layout, for which `QueueMismatch` is raised.
        """
        await self._queues.ensure(spec, make)

    async def queues(self) -> Sequence[QueueStats]:
        """Every queue below the prefix, by name; each is listed, which costs a request or more."""
        gate = asyncio.Semaphore(MAX_LOOKS)
        try:
            async with asyncio.TaskGroup() as group:
                looks = [
                    group.create_task(self._look(name, gate), name="pumphouse-s3-stats")
                    async for name in self._queues.names()
                ]
        except ExceptionGroup as failures:
            # The others were cancelled, or failed of the same cause.
            raise failures.exceptions[0] from None
        found = [stats for look in looks if (stats := look.result()) is not None]
        return sorted(found, key=lambda stats: stats.name)

    async def stats(self, queue: str) -> QueueStats:
        return await (await self._queues.of(queue)).stats()

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await (await self._queues.of(queue)).peek(max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await (await self._queues.of(queue)).purge()

    async def _look(self, name: str, gate: asyncio.Semaphore) -> QueueStats | None:
        async with gate:
            try:
                return await self.stats(name)
            except QueueNotFound:
                # Removed since it was listed.
                return None
