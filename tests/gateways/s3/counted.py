"""Counted: a workload of the cost tool, carried out on the model store in virtual time.

Each process is a queue of its own on the same objects. A receive loop takes up to `receive`
messages, handles them for about `handler_s`, some longer and some less, and acks them together. A
request takes `latency_s`, and takes effect in the middle of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import attrs

from gateways.s3.cost import Requests, Workload
from gateways.s3.layout import (
    Layout,
    QueueDescription,
    QueueKeys,
    S3QueueSettings,
    StoredQueue,
    Surroundings,
)
from gateways.s3.store.objects import Get, ObjectStore, Reply, Request, ServerTime
from pump.message import Delivery, Message
from pump.outcome import Ack, Settlement

from .jumping_loop import LoopClock, run_jumping
from .model_store import ModelS3, ModelStore

_WAIT_S = 20.0


class LatentStore:
    """A store that is some way off."""

    def __init__(self, store: ObjectStore, wait: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._wait = wait

    async def perform(self, request: Request) -> Reply:
        await self._wait()
        reply = await self._store.perform(request)
        await self._wait()
        return reply


@attrs.define(eq=False)
class CountedRun:
    """One workload on one layout."""

    layout: Layout
    workload: Workload
    clock: LoopClock = attrs.field(factory=LoopClock)
    s3: ModelS3 = attrs.field(init=False)
    handled: set[str] = attrs.field(factory=set)
    _ids: Iterator[int] = attrs.field(factory=count)
    _queues: list[StoredQueue] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.s3 = ModelS3(self.clock.time_s)

    async def requests(self) -> Requests:
        """Send and consume everything, wait as long as the workload idles, and count."""
        await self._run()
        assert len(self.handled) == self.workload.messages
        counts = self.s3.counts
        return Requests(counts["put"], counts["list"], counts["get"], counts["remove"])

    async def _run(self) -> None:
        sender = await self._queue()
        if self.workload.rate is None:
            await self._send(sender)
            await sender.aclose()
        consumers = [await self._queue() for _ in range(self.workload.processes)]
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._consume(queue, size))
                for place, queue in enumerate(consumers)
                for size in self._loops(place)
            ]
            if self.workload.rate is not None:
                await self._send(sender)
            while len(self.handled) < self.workload.messages:
                await self.clock.sleep(self.workload.latency_s)
            # Acks that were just made come to their end, and what is done is cleaned up.
            await self.clock.sleep(4 * self.workload.latency_s)
            counted = self.s3.counts.copy()
            if self.workload.idle_s:
                await self.clock.sleep(self.workload.idle_s)
                counted = self.s3.counts.copy()
            for loop in loops:
                loop.cancel()
        for queue in self._queues:
            await queue.aclose()
        self.s3.counts = counted

    def _loops(self, process: int) -> list[int]:
        """How many messages each receive loop of a process has in hand at once."""
        work = self.workload
        own = work.consumers // work.processes + (process < work.consumers % work.processes)
        sizes = [work.receive] * (own // work.receive)
        return [*sizes, own % work.receive] if own % work.receive else sizes

    async def _send(self, queue: StoredQueue) -> None:
        work = self.workload
        for start in range(0, work.messages, work.batch):
            numbers = range(start, min(start + work.batch, work.messages))
            body = b"x" * work.body_bytes
            messages = [
                Message(body=body, id=str(number), created_at_s=self.clock.time_s())
                for number in numbers
            ]
            began_s = self.clock.now_s()
            await queue.send(messages, delay_s=0.0)
            if work.rate is not None:
                spent_s = self.clock.now_s() - began_s
                await self.clock.sleep(max(0.0, len(messages) / work.rate - spent_s))

    async def _consume(self, queue: StoredQueue, size: int) -> None:
        work = self.workload
        while True:
            found = await queue.receive(max_count=size, wait_s=_WAIT_S, lease_s=work.lease_s)
            if not found:
                continue
            await self._handle(queue, found)
            refusals = await queue.settle([Settlement(each, Ack()) for each in found])
            assert not refusals
            self.handled |= {each.message.id for each in found}

    async def _handle(self, queue: StoredQueue, found: list[Delivery]) -> None:
        """Work, and renew as the pump does: when half of a lease is over."""
        left_s = self.workload.handler_s * (0.5 + self.clock.chance())
        half_s = self.workload.lease_s / 2
        while left_s >= half_s:
            await self.clock.sleep(half_s)
            assert not await queue.extend(found, lease_s=self.workload.lease_s)
            left_s -= half_s
        await self.clock.sleep(left_s)

    async def _travel(self) -> None:
        """One way. No two take the same time: processes would go in step."""
        await self.clock.sleep(self.workload.latency_s / 2 * (0.7 + 0.6 * self.clock.chance()))

    async def _queue(self) -> StoredQueue:
        time = ServerTime(self.clock.now_s)
        store = LatentStore(ModelStore(self.s3, time, self.clock.now_s), self._travel)
        keys = QueueKeys("", "orders")
        # As the gateway does: it reads what the queue is like, and so learns the time.
        await store.perform(Get(keys.facts))
        around = Surroundings(
            keys=keys,
            store=store,
            time=time,
            clock=self.clock,
            send_to=_nowhere,
            new_id=lambda: f"id{next(self._ids)}",
        )
        settings = S3QueueSettings(poll_s=self.workload.poll_s)
        queue = _built(self.layout)(
            QueueDescription(name="orders", layout=self.layout), around, settings
        )
        self._queues.append(queue)
        return queue


def _built(
    layout: Layout,
) -> Callable[[QueueDescription, Surroundings, S3QueueSettings], StoredQueue]:
    if layout is Layout.LOG:
        from gateways.s3.log.queue import LoggedQueue

        return LoggedQueue
    from gateways.s3.leases.queue import LeasedQueue

    return LeasedQueue


def counted(layout: Layout, workload: Workload) -> Requests:
    """The requests that a workload really makes."""
    return run_jumping(CountedRun(layout, workload).requests())


async def _nowhere(queue: str, message: Message) -> None:
    raise AssertionError(f"a message was moved to {queue}")
