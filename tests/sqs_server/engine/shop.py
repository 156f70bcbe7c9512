"""A shop: an engine with a queue or two, and few words to use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gateways._sqlite.group_commit import Done
from gateways.sqs_server.engine import Queue, ReceiptProblem, SqsEngine, Store
from gateways.sqs_server.engine.entries import Entry
from gateways.sqs_server.engine.record import SqsRecord, TimedHold
from gateways.sqs_server.model import (
    Accepted,
    NewMessage,
    QueueCounts,
    QueueId,
    Received,
    RedrivePolicy,
    SqsQueueSettings,
)
from pump.errors import StorageFailed
from pump.testing.virtual_clock import VirtualClock

FULL = StorageFailed("sqs.db", "full")


def address(name: str) -> QueueId:
    return QueueId("000000000000", "us-east-1", name)


def redrive(name: str, max_receive_count: int) -> RedrivePolicy:
    return RedrivePolicy(target=address(name), max_receive_count=max_receive_count)


class Shop:
    """One engine, and one queue to talk about."""

    def __init__(self, engine: SqsEngine, clock: VirtualClock) -> None:
        self.engine = engine
        self.clock = clock
        self._queue: Queue | None = None

    @classmethod
    async def open(cls, clock: VirtualClock, store: Store | None = None) -> Shop:
        engine = SqsEngine(clock, store)
        await engine.open()
        return cls(engine, clock)

    @property
    def queue(self) -> Queue:
        assert self._queue is not None
        return self._queue

    async def make(self, name: str, **settings: Any) -> Queue:
        """Make a queue, the one that is meant from now on."""
        self._queue = await self.engine.create(SqsQueueSettings(address=address(name), **settings))
        return self._queue

    def use(self, name: str) -> Queue:
        queue = self.engine.find(address(name))
        assert queue is not None
        self._queue = queue
        return queue

    async def send(self, *bodies: str, **fields: Any) -> list[Accepted]:
        return await self.engine.send(self.queue, [NewMessage(body=b, **fields) for b in bodies])

    async def send_fifo(self, *bodies: str, group: str = "g", **fields: Any) -> list[Accepted]:
        """Each body is its own de-duplication id."""
        return await self.engine.send(
            self.queue,
            [NewMessage(body=b, group=group, deduplication_id=b, **fields) for b in bodies],
        )

    async def receive(
        self,
        max_count: int = 10,
        *,
        wait_s: float = 0.0,
        visibility_s: int = 30,
        attempt_id: str | None = None,
    ) -> list[Received]:
        return await self.engine.receive(
            self.queue,
            max_count=max_count,
            wait_s=wait_s,
            visibility_s=visibility_s,
            attempt_id=attempt_id,
        )

    async def bodies(self, max_count: int = 10, *, visibility_s: int = 30) -> list[str]:
        return [each.body for each in await self.receive(max_count, visibility_s=visibility_s)]

    async def delete(self, *received: Received) -> list[ReceiptProblem | None]:
        return await self.engine.delete(self.queue, [each.receipt for each in received])

    async def change(self, received: Received, visibility_s: int) -> ReceiptProblem | None:
        changes = [(received.receipt, visibility_s)]
        return (await self.engine.change_visibility(self.queue, changes))[0]

    def counts(self) -> tuple[int, int, int]:
        """Visible, in flight, delayed."""
        counts: QueueCounts = self.engine.counts(self.queue)
        return counts.visible, counts.in_flight, counts.delayed

    async def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start an operation and let it come to where it waits."""
        task = asyncio.create_task(work)
        await self.clock.settle()
        return task


class PatientStore:
    """Writes when told to, and refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.is_held = False
        self.refuses: Callable[[Entry], bool] = lambda entry: False
        self.entries: list[Entry] = []
        self._waiting: list[tuple[Entry, Done, asyncio.Future[None]]] = []

    async def open(self, engine: SqsEngine) -> None:
        """Nothing to recover."""

    def has_room(self, messages: Sequence[NewMessage]) -> bool:
        return True

    async def require_room(self, messages: Sequence[NewMessage]) -> None:
        """There always is."""

    def note_receive(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        """No crash is survived."""

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        """The same."""

    async def aclose(self, *, frees: bool = True) -> None:
        self.release()

    def write(self, entry: Entry, done: Done) -> asyncio.Future[None]:
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, done, ticket))
        if not self.is_held:
            self.release()
        return ticket

    def hold(self) -> None:
        self.is_held = True

    def release(self, *, fails: bool = False) -> None:
        self.is_held = False
        waiting, self._waiting = self._waiting, []
        for entry, done, ticket in waiting:
            error = FULL if fails or self.refuses(entry) else None
            if error is None:
                self.entries.append(entry)
            done(error)
            if ticket.done():
                continue
            if error is None:
                ticket.set_result(None)
            else:
                ticket.set_exception(error)
                ticket.exception()
