"""The memory gateway behind a way on which one can fail, fall silent, or die."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
from msgspec.structs import replace

from gateways.memory import MemoryGateway
from gateways.memory.gateway import CAPABILITIES
from pump.capabilities import Capabilities
from pump.clock import Clock
from pump.headers import (
    ATTEMPTS,
    ORIGINAL_TOPIC,
    REJECTION_DETAIL,
    REJECTION_REASON,
    REJECTION_TIMESTAMP,
)
from pump.message import Delivery, Message
from pump.outcome import Abandon, Ack, Refusal, Settlement
from pump.ports import AdminPort, ConsumerPort, ProducerPort
from pump.redrive.folder import Plan, QueueFolder, RedriveCounts, opened
from pump.redrive.moving import RedriveMover
from pump.redrive.rows import LedgerRows
from pump.redrive.run import PreparedRun, finish, left_of, move, prepare
from pump.redrive.selection import DuckdbSelector
from pump.stores.ledger.buffered_ledger import BufferedLedger
from pump.subscription import MakeChannels, QueueSpec, Subscription
from pump.testing.virtual_clock import VirtualClock

DEAD, TARGET = "orders-dead", "orders"
_T = TypeVar("_T")
Fault = Callable[[], Awaitable[None]]


class Killed(BaseException):
    """The process is gone: no code of it runs any more that could reach the broker."""


def a_dead_letter(number: int, *, type: str = "Order", **changes: Any) -> Message:
    fields: dict[str, Any] = {
        "id": f"m-{number}",
        "body": f'{{"n": {number}}}'.encode(),
        "type": type,
        "created_at_s": 1_700_000_000.0,
        "headers": {
            ORIGINAL_TOPIC: TARGET,
            REJECTION_REASON: "DeliveryError",
            REJECTION_DETAIL: "no",
            REJECTION_TIMESTAMP: f"2026-11-01T00:00:{number % 60:02d}+00:00",
            ATTEMPTS: "3",
        },
    }
    return Message(**{**fields, **changes})


class Rig:
    """A broker, and the ways of one process to it."""

    def __init__(self, clock: Clock, memory: MemoryGateway | None = None, **changes: Any) -> None:
        self.clock = clock
        self.memory = memory or MemoryGateway(clock)
        self.capabilities: Capabilities = attrs.evolve(CAPABILITIES, **changes)
        self.before: dict[str, Fault] = {}
        self.after: dict[str, Fault] = {}
        self.calls: Counter[str] = Counter()
        self.settled: list[Settlement] = []
        self.is_dead = False
        self.forgets = False
        """Whether the target de-duplicates nothing."""

    def next_life(self) -> Rig:
        """Another process, on the same broker."""
        rig = Rig(self.clock, self.memory)
        rig.capabilities, rig.forgets = self.capabilities, self.forgets
        return rig

    def kill_at(self, when: str, operation: str, nth: int = 1) -> None:
        faults = self.before if when == "before" else self.after

        async def die() -> None:
            if self.calls[operation] >= nth:
                self.is_dead = True
                raise Killed

        faults[operation] = die

    async def passing(self, operation: str, call: Callable[[], Awaitable[_T]]) -> _T:
        if self.is_dead:
            raise Killed
        self.calls[operation] += 1
        await self.before.get(operation, _fine)()
        answer = await call()
        await self.after.get(operation, _fine)()
        return answer

    # -- the gateway -----------------------------------------------------------------------------

    async def open(self) -> None:
        await self.memory.open()

    async def aclose(self) -> None:
        await self.memory.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return _Consumer(self, self.memory.consumer(subscription))

    def producer(self, queue: str) -> ProducerPort:
        return _Producer(self, self.memory.producer(queue))

    def admin(self) -> AdminPort:
        return self.memory.admin()

    # -- what is where ---------------------------------------------------------------------------

    async def fill(self, *letters: Message) -> None:
        for queue in (DEAD, TARGET):
            await self.memory.admin().ensure(QueueSpec(name=queue), MakeChannels.CREATE)
        if letters:
            await self.memory.producer(DEAD).send(letters)

    async def ids_in(self, queue: str) -> list[str]:
        """In order of their number; every lease has run out by then."""
        found = await self.memory.admin().peek(queue, max_count=100_000)
        return sorted((each.id for each in found), key=lambda id: (len(id), id))

    async def in_flight(self, queue: str) -> int:
        return (await self.memory.admin().stats(queue)).in_flight


class _Consumer:
    def __init__(self, rig: Rig, port: ConsumerPort) -> None:
        self._rig, self._port = rig, port

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._rig.passing(
            "receive", lambda: self._port.receive(max_count=max_count, wait_s=wait_s)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        is_ack = isinstance(settlements[0].action, Ack)
        refusals = await self._rig.passing(
            "ack" if is_ack else "hand back", lambda: self._port.settle(settlements)
        )
        self._rig.settled += settlements
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return await self._rig.passing(
            "extend", lambda: self._port.extend(deliveries, lease_s=lease_s)
        )

    async def aclose(self) -> None:
        await self._port.aclose()


class _Producer:
    def __init__(self, rig: Rig, port: ProducerPort) -> None:
        self._rig, self._port = rig, port

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        if self._rig.forgets:
            messages = [replace(each, deduplication_id=None) for each in messages]
        return await self._rig.passing("send", lambda: self._port.send(messages, delay_s=delay_s))

    async def aclose(self) -> None:
        await self._port.aclose()


async def _fine() -> None:
    return None


# -- a redrive, as the command line runs it ------------------------------------------------------


def a_plan(where: str = "type = 'Order'", **changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "gateway": "memory://",
        "queue": DEAD,
        "target": TARGET,
        "where": where,
    }
    return Plan(**{**fields, **changes})


@attrs.define
class Redrive:
    """One process's redrive: `await it.run()`."""

    rig: Rig
    folder: Path
    plan: Plan = attrs.field(factory=a_plan)
    rate: float | None = None
    batch: int = 4
    ledger: BufferedLedger | None = None
    stopping: asyncio.Event = attrs.field(factory=asyncio.Event)
    prepared: PreparedRun | None = None
    mover: RedriveMover | None = None
    progress: list[RedriveCounts] = attrs.field(factory=list)
    left: int = 0
    unremoved: int = 0

    async def run(self) -> RedriveCounts:
        manager = opened(self.folder, self.plan)
        folder = await asyncio.to_thread(manager.__enter__)
        try:
            return await self._run(folder)
        finally:
            await asyncio.to_thread(manager.__exit__, None, None, None)

    async def _run(self, folder: QueueFolder) -> RedriveCounts:
        rig, clock = self.rig, self.rig.clock
        prepared = self.prepared = await prepare(
            rig, folder, self.plan, DuckdbSelector(), stopping=self.stopping, clock=clock
        )
        async with LedgerRows(self.ledger, "memory", clock) as rows:
            self.mover = await move(
                rig,
                prepared,
                prepared.task(rate=self.rate, batch=self.batch),
                rows=rows,
                stopping=self.stopping,
                on_moved=self.progress.append,
                clock=clock,
            )
        left = await asyncio.to_thread(left_of, prepared)
        self.left, self.unremoved = left.unsent, left.unremoved
        if not (self.stopping.is_set() and left):
            await asyncio.to_thread(finish, prepared, self.mover.counts)
        return self.mover.counts


async def through_time(
    clock: VirtualClock, work: Coroutine[Any, Any, _T], *, most_s: float = 600.0
) -> _T:
    """The result of the work, for which as much time passes as it needs."""
    task = asyncio.create_task(work)
    passed_s = 0.0
    await clock.advance(0)
    while not task.done():
        assert passed_s < most_s, "it does not come to an end"
        await clock.advance(0.25)
        passed_s += 0.25
    return await task


def handed_back(rig: Rig) -> int:
    return sum(isinstance(each.action, Abandon) for each in rig.settled)
