"""Tasks that go on when their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Tasks that are kept until they are done, waited for or not: the loop keeps none alive."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run something to its end, whether or not it is waited for."""
        task = asyncio.create_task(work, name=f"{self._gateway} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def opened(
        self, work: Coroutine[Any, Any, T | None], close: Callable[[T], Awaitable[object]]
    ) -> T | None:
        """What `work` opens; cancelled meanwhile, it is closed again as soon as it is there."""
        task = self.start(work, "open")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.start(_close_when_there(task, close), "close")
            raise

    async def finish_current(self) -> None:
        """Wait for those that have been started by now."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def finish(self) -> None:
        """Wait for all of them, and for what they start."""
        while self._tasks:
            await self.finish_current()

    async def abort(self) -> None:
        """Cancel all of them, and wait for what that leaves to be closed."""
        for task in list(self._tasks):
            task.cancel()
        await self.finish()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Looked at: asyncio complains of an error that its caller no longer waits for.
            task.exception()


async def _close_when_there(
    task: asyncio.Task[T | None], close: Callable[[T], Awaitable[object]]
) -> None:
    if (opened := await task) is not None:
        await close(opened)
