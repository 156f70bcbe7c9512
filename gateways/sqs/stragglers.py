"""Stragglers: long polls whose receiver was cancelled, but which SQS still answers.

Dropping the connection would not help: SQS goes on waiting, leases a message to nobody, and
hides it until the lease ends. So the poll is left to end by itself, and what it brings is given
back at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pump.errors import PumpError
from pump.message import Delivery

Polling = asyncio.Task[Sequence[Delivery]]


class Stragglers:
    """The abandoned polls of one consumer."""

    def __init__(self, give_back: Callable[[Sequence[Delivery]], Awaitable[None]]) -> None:
        self._give_back = give_back
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._ending)

    def add(self, polling: Polling) -> None:
        """See a poll to its end, and give back what it brings."""
        ending = asyncio.create_task(self._see_off(polling), name="sqs straggler")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """Wait until every one has ended; cancelled, end them at once."""
        await asyncio.gather(*self._ending)

    async def _see_off(self, polling: Polling) -> None:
        try:
            deliveries = await polling
        except PumpError:
            return  # It failed, so it holds nothing that we know of.
        await self._give_back(deliveries)
