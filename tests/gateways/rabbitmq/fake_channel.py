"""A channel of the SDK's, as far as the gateway writes to it: the test is the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any


class FakeChannel:
    """Keeps what is written, in a queue with room for so much."""

    def __init__(self, room: int = 0) -> None:
        self.number = 1
        self.delivery_tag = 0
        self.confirmations: dict[int, asyncio.Future[Any]] = {}
        self.message_id_delivery_tag: dict[str, int] = {}
        self.max_content_size = 100_000
        self.is_closed = False
        self.connection = SimpleNamespace(is_closed=False)
        self.write_queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=room)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def create_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.create_task(work)

    async def flow(self, active: bool) -> None:
        """Answered at once."""

    def written(self) -> bytes:
        """The next thing that was written."""
        payload: bytes = self.write_queue.get_nowait().payload
        return payload
