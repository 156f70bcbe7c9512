"""Processes that send and work on one folder while some of them are killed, host or not."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from pump.clock import SYSTEM_CLOCK

from .conftest import Child, OpenLocal, StartChild
from .queue_user import QueueUser


class Crowd:
    """Running children, and everything they have said."""

    def __init__(self, start_child: StartChild) -> None:
        self._start_child = start_child
        self._members: list[tuple[Child, asyncio.Task[None]]] = []
        self._has_news = asyncio.Event()
        self.said: Counter[tuple[str, str]] = Counter()

    async def grow(self) -> None:
        child = await self._start_child("both")
        self._members.append((child, asyncio.create_task(self._listen(child))))

    async def until_said(self, count: int) -> None:
        target = self.said.total() + count
        while self.said.total() < target:
            self._has_news.clear()
            await self._has_news.wait()

    def ids_said(self, verb: str) -> Counter[str]:
        """The messages of which this was said, and how often."""
        return Counter({id_: times for (said, id_), times in self.said.items() if said == verb})

    async def kill(self, position: int) -> None:
        child, listening = self._members.pop(position)
        await child.kill()
        await listening

    async def _listen(self, child: Child) -> None:
        async for verb, message_id in child.pairs():
            self.said[verb, message_id] += 1
            self._has_news.set()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_when_processes_are_killed_at_random_then_nothing_is_lost_or_done_twice(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """T3, T4, R5: ten kills among three processes, one of which hosts."""
    crowd, chance = Crowd(start_child), random.Random(7)
    for _ in range(3):
        await crowd.grow()
    for _ in range(10):
        await crowd.until_said(300)
        await crowd.kill(chance.randrange(3))
        await crowd.grow()
    for _ in range(3):
        await crowd.kill(0)

    orders = QueueUser(await open_local(SYSTEM_CLOCK))
    left = Counter(d.message.id for d in await orders.receive(10**6))

    sent, acking, done = (crowd.ids_said(verb) for verb in ("sent", "acking", "done"))
    assert max(sent.values()) == 1, "a send was stored twice"
    assert max(done.values()) == 1, "a confirmed ack was undone"
    assert not left & done
    assert max(left.values(), default=1) == 1
    # Whatever is neither there nor confirmed was being acked by a process that died before it
    # could say so. A message that vanished without that would be lost.
    assert not set(sent) - set(done) - set(left) - set(acking)
