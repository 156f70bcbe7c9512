"""Worlds for the tests of leases: a bucket, processes on it, and requests that go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from gateways.s3.layout import QueueDescription, QueueKeys, S3QueueSettings, Surroundings
from gateways.s3.leases import LeasedQueue
from gateways.s3.leases.codec import LeaseObject
from gateways.s3.store.objects import (
    ConditionFailed,
    Put,
    Reply,
    Request,
    ServerTime,
    Steps,
    Unknown,
    WriteConflict,
)
from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed
from pump.message import Delivery, Message
from pump.outcome import ACK, Settlement
from pump.testing import VirtualClock
from tests.gateways.s3.model_store import ModelS3, ModelStore

T = TypeVar("T")
KEYS = QueueKeys("", "orders")
LEASE_S = 30.0
OVER_S = LEASE_S * 1.01 + 2.0
"""After this, a lease is over for everyone: clocks may drift, and dates are whole seconds."""

Fault = str
LOST = "the request is lost"
UNANSWERED = "the answer is lost"
BUSY = "another write is under way"
REPEATED = "the request arrives twice"
REPEATED_BUSY = "it is written, and its repetition finds another write under way"
FAULTS = [LOST, UNANSWERED, BUSY, REPEATED, REPEATED_BUSY]

_UNKNOWN = Unknown(ConnectionFailed("s3", "no answer"))


def struck(apply: Callable[[Request], Reply], request: Request, fault: Fault | None) -> Reply:
    """Perform a request under a fault."""
    if fault == LOST:
        return _UNKNOWN
    if fault == BUSY:
        return WriteConflict() if isinstance(request, Put) else _UNKNOWN
    reply = apply(request)
    if fault == UNANSWERED:
        return _UNKNOWN
    if fault == REPEATED_BUSY:
        return WriteConflict(may_be_ours=True) if isinstance(request, Put) else reply
    if fault == REPEATED:
        reply = apply(request)
        return ConditionFailed(may_be_ours=True) if isinstance(reply, ConditionFailed) else reply
    return reply


def play(steps: Steps[T], s3: ModelS3, faults: Sequence[Fault | None] = ()) -> T:
    """Perform a protocol at once; the n-th request suffers the n-th fault."""
    left = list(faults)
    try:
        request = next(steps)
        while True:
            request = steps.send(struck(s3.apply, request, left.pop(0) if left else None))
    except StopIteration as end:
        result: T = end.value
        return result


def leave(steps: Steps[Any], s3: ModelS3, after: int) -> None:
    """Perform so many requests of a protocol and no more, as a process that dies."""
    try:
        request = next(steps)
        for _ in range(after):
            request = steps.send(s3.apply(request))
    except StopIteration:
        return
    steps.close()


_nonces = count(1)


def new_id() -> str:
    """A nonce that no other test has."""
    return f"nonce{next(_nonces)}"


def a_lease(token: str = "mine", **fields: Any) -> LeaseObject:
    """A lease in somebody's hands."""
    given = {"owner": f"owner of {token}", "expires_s": 100.0, "attempt": 1, "fence": 1, **fields}
    return LeaseObject(token=token, nonce=new_id(), **given)


def a_bucket() -> ModelS3:
    """An empty store where no time passes."""
    return ModelS3(lambda: 0.0)


class FaultyStore:
    """A process's way to the bucket: every request takes some turns, and may be struck."""

    def __init__(self, inner: ModelStore, *, turns: int = 0) -> None:
        self.inner = inner
        self.turns = turns
        self.faults: list[tuple[Callable[[Request], bool], Fault]] = []
        """Each is used once, for the first request it is about."""
        self.gate: Callable[[Request], asyncio.Event | None] = lambda request: None
        """What a request has to wait for before it reaches the bucket."""

    async def perform(self, request: Request) -> Reply:
        for _ in range(self.turns):
            await yield_to_loop()
        gate = self.gate(request)
        if gate is not None:
            await gate.wait()
        fault = self._fault(request)
        if fault is None:
            reply = await self.inner.perform(request)
        else:
            reply = struck(self.inner.s3.apply, request, fault)
        for _ in range(self.turns):
            await yield_to_loop()
        return reply

    def _fault(self, request: Request) -> Fault | None:
        for each in self.faults:
            if each[0](request):
                self.faults.remove(each)
                return each[1]
        return None


class World:
    """One bucket in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.s3 = ModelS3(self.clock.time_s)
        self.moved: list[tuple[str, Message]] = []
        self.move_fails = 0
        """How often moving a message fails from now on."""
        self.queues: list[LeasedQueue] = []
        self.stores: list[FaultyStore] = []
        self._ids = count(1)

    def process(
        self, *, turns: int = 0, settings: S3QueueSettings | None = None, **facts: Any
    ) -> LeasedQueue:
        """The queue as another process has it."""
        time = ServerTime(self.clock.now_s)
        store = FaultyStore(ModelStore(self.s3, time, self.clock.now_s), turns=turns)
        queue = LeasedQueue(
            QueueDescription(name="orders", **facts),
            Surroundings(
                keys=KEYS,
                store=store,
                time=time,
                clock=self.clock,
                send_to=self._move,
                new_id=lambda: f"id{next(self._ids)}",
            ),
            settings or S3QueueSettings(),
        )
        self.stores.append(store)
        self.queues.append(queue)
        return queue

    async def aclose(self) -> None:
        for queue in self.queues:
            await queue.aclose()

    @property
    def billed(self) -> int:
        """Requests that cost something."""
        return sum(self.s3.counts[kind] for kind in ("put", "get", "list"))

    def keys(self, kind: str) -> list[str]:
        """What there is below a prefix."""
        prefix = f"{KEYS.root}{kind}"
        return sorted(key for key in self.s3.objects if key.startswith(prefix))

    async def _move(self, queue: str, message: Message) -> None:
        if self.move_fails:
            self.move_fails -= 1
            raise ConnectionFailed(queue, "ordered")
        self.moved.append((queue, message))


async def take(queue: LeasedQueue, max_count: int = 1, *, wait_s: float = 0.0) -> list[Delivery]:
    """What one receive returns."""
    return await queue.receive(max_count=max_count, wait_s=wait_s, lease_s=LEASE_S)


async def take_all(queue: LeasedQueue, max_count: int = 10) -> list[Delivery]:
    """Receive until there is no more."""
    taken: list[Delivery] = []
    while batch := await take(queue, max_count):
        taken += batch
    return taken


async def ack_all(queue: LeasedQueue, deliveries: Sequence[Delivery]) -> None:
    """Ack, and expect that nothing is refused."""
    assert await queue.settle([Settlement(each, ACK) for each in deliveries]) == []


def bodies(deliveries: Sequence[Delivery]) -> str:
    """The bodies, put together."""
    return b"".join(each.message.body for each in deliveries).decode()
