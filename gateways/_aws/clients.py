"""Clients: one per service, made at its first use and only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Client = Any
"""A client of an SDK: its methods come out of service models when it is made."""


class Clients:
    """However many ask at once, a client is made once.

    One that could not be made is tried again by the next who asks. Cancelling one who asks
    leaves the making to the others.
    """

    def __init__(self, make: Callable[[str], Awaitable[Client]]) -> None:
        self._make = make
        self._made: dict[str, Client] = {}
        self._making: dict[str, asyncio.Task[Client]] = {}
        self._turn = asyncio.Lock()

    def made(self, service: str) -> Client | None:
        """The client of this service, if there is one already."""
        return self._made.get(service)

    async def of(self, service: str) -> Client:
        """The client of this service. CancelledError, too, once the clients are closed."""
        client = self._made.get(service)
        if client is not None:
            return client
        making = self._making.get(service) or self._begin(service)
        await asyncio.wait([making])
        return making.result()

    async def aclose(self) -> None:
        """Stop making clients; those that are made belong to who made them."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)

    def _begin(self, service: str) -> asyncio.Task[Client]:
        task = asyncio.create_task(self._one(service), name=f"pumphouse-aws-client-{service}")
        self._making[service] = task
        task.add_done_callback(lambda done: self._end(service, done))
        return task

    async def _one(self, service: str) -> Client:
        # An SDK's session makes one client at a time.
        async with self._turn:
            return await self._make(service)

    def _end(self, service: str, done: asyncio.Task[Client]) -> None:
        del self._making[service]
        # Asking for the exception also says that it is not forgotten when nobody waited.
        if not done.cancelled() and done.exception() is None:
            self._made[service] = done.result()
