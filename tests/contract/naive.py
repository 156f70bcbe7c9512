"""A gateway without a trick: the contract in its plainest words, and what saboteurs spoil.

Everything is decided by looking at all entries; nothing is fast. It can do all that a gateway
can do, so that every test of the suite has something to bite on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import ClassVar

import attrs

from pump.capabilities import Capabilities, OrderingMode
from pump.clock import Clock
from pump.errors import (
    ConfigurationError,
    MessageTooLarge,
    QueueNotFound,
    UnsupportedOperation,
)
from pump.message import Delivery, Message
from pump.outcome import Abandon, Ack, Action, Defer
from pump.ports import QueueStats
from pump.subscription import QueueSpec, Subscription

from .naive_ports import NaiveAdmin, NaiveConsumer, NaiveProducer
from .naive_sessions import Lock, NaiveSession, NaiveSessions

EVERYTHING = Capabilities(
    gateway="naive",
    ordering_modes=frozenset(OrderingMode),
    has_strict_order=True,
    has_groups=True,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=True,
    has_native_redrive=True,
    has_uncounted_abandon=True,
    has_peek=True,
    has_purge=True,
    has_exact_stats=True,
    is_durable=True,
    max_body_bytes=100_000,
)
PLAIN = Capabilities(gateway="plain")
CHOOSY = attrs.evolve(EVERYTHING, gateway="choosy", has_session_choice=False)
"""It chooses the next session itself."""
LIMITED = Capabilities(
    gateway="limited",
    max_delay_s=100.0,
    max_defer_s=200.0,
    max_lease_s=120.0,
    max_body_bytes=50_000,
    receive_batch=7,
    settle_batch=3,
    max_settle_calls=2,
    max_pollers=3,
)
"""Every number has a limit, and nothing can be looked into."""
WINDOW_S = 300.0


@attrs.define(eq=False)
class Entry:
    """One message in one queue."""

    message: Message
    number: int
    sent_at_s: float
    visible_at_s: float
    attempt: int = 0
    receipt: str | None = None
    leased_at_s: float = 0.0


@attrs.define(eq=False)
class Queue:
    """What a queue is like, and what is in it."""

    spec: QueueSpec
    entries: list[Entry] = attrs.field(factory=list)
    seen_until_s: dict[str, float] = attrs.field(factory=dict)
    locks: dict[str, Lock] = attrs.field(factory=dict)


class NaiveGateway:
    """Broker, consumer, producer and caretaker in one place; each decision is one method."""

    Consumer: ClassVar[type[NaiveConsumer]] = NaiveConsumer
    Producer: ClassVar[type[NaiveProducer]] = NaiveProducer
    Admin: ClassVar[type[NaiveAdmin]] = NaiveAdmin
    Sessions: ClassVar[type[NaiveSessions]] = NaiveSessions
    Session: ClassVar[type[NaiveSession]] = NaiveSession

    def __init__(self, clock: Clock, capabilities: Capabilities = EVERYTHING) -> None:
        self.clock = clock
        self.capabilities = capabilities
        self.stock: dict[str, Queue] = {}
        self.numbers = itertools.count(1)
        self.waiters: set[asyncio.Future[None]] = set()
        self.sessions = self.Sessions(self)
        self.settle_requests = 0
        self.wall_offset_s = clock.time_s() - clock.now_s()

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        self.sessions.close()

    def reload(self) -> None:
        """Times are kept by the wall clock: `now_s` may begin anew with the machine."""
        shift_s = self.wall_offset_s - (self.clock.time_s() - self.clock.now_s())
        self.wall_offset_s -= shift_s
        for queue in self.stock.values():
            for key in queue.seen_until_s:
                queue.seen_until_s[key] += shift_s
            for entry in queue.entries:
                entry.sent_at_s += shift_s
                entry.visible_at_s += shift_s
                entry.leased_at_s += shift_s

    def restart(self) -> None:
        """What dies with a process: nothing, leases run out by themselves."""

    def consumer(self, subscription: Subscription) -> NaiveConsumer:
        return self.Consumer(self, subscription)

    def producer(self, queue: str) -> NaiveProducer:
        return self.Producer(self, queue)

    def admin(self) -> NaiveAdmin:
        return self.Admin(self)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> NaiveSession | None:
        self.check_offered("has_sessions")
        return await self.sessions.accept(subscription, session, wait_s=wait_s)

    # Queues.

    def find(self, name: str) -> Queue:
        self.sweep()
        if name not in self.stock:
            raise QueueNotFound(name)
        return self.stock[name]

    def create(self, spec: QueueSpec) -> None:
        if spec.dead_letter_queue is not None:
            self.find(spec.dead_letter_queue)
        self.stock.setdefault(spec.name, Queue(spec))

    def check_options(self, spec: QueueSpec) -> None:
        if spec.options:
            raise ConfigurationError("QueueSpec.options", sorted(spec.options), "leave them out")

    def check_offered(self, capability: str) -> None:
        if not getattr(self.capabilities, capability):
            name = self.capabilities.gateway
            raise UnsupportedOperation(name, capability, "it was not told to")

    def check_supported(self, spec: QueueSpec) -> None:
        self.check_options(spec)
        if spec.ordering not in self.capabilities.ordering_modes:
            raise UnsupportedOperation("naive", spec.ordering, "it was not told to")
        if spec.ordering_guarantee and not self.capabilities.has_strict_order:
            raise UnsupportedOperation("naive", "ordering_guarantee", "it was not told to")

    def difference(self, queue: Queue, spec: QueueSpec) -> str:
        fields = ("ordering", "ordering_guarantee", "max_receive_count", "dead_letter_queue")
        return ", ".join(f for f in fields if getattr(queue.spec, f) != getattr(spec, f))

    # Sending.

    def check_size(self, message: Message) -> None:
        limit = self.capabilities.max_body_bytes
        if limit is not None and len(message.body) > limit:
            raise MessageTooLarge("naive", len(message.body), limit)

    def check_delay(self, delay_s: float) -> None:
        limit_s = self.capabilities.max_delay_s
        if limit_s is not None and delay_s > limit_s:
            name = self.capabilities.gateway
            raise UnsupportedOperation(name, f"a delay of {delay_s:g} s", f"{limit_s:g} s at most")

    def is_duplicate(self, queue: Queue, message: Message) -> bool:
        key = message.deduplication_id
        if key is None or not self.capabilities.has_deduplication:
            return False
        if queue.seen_until_s.get(key, 0.0) > self.clock.now_s():
            return True
        queue.seen_until_s[key] = self.clock.now_s() + WINDOW_S
        return False

    def add(self, queue: Queue, message: Message, delay_s: float) -> None:
        now_s = self.clock.now_s()
        queue.entries.append(Entry(message, next(self.numbers), now_s, now_s + delay_s))

    async def store_raw(self, name: str, raw: bytes) -> None:
        """What another program puts into the queue."""
        self.add(self.find(name), Message(body=raw), 0.0)
        self.wake()

    # Receiving.

    def candidates(self, queue: Queue) -> list[Entry]:
        is_lifo = queue.spec.ordering is OrderingMode.LIFO
        return sorted(queue.entries, key=lambda entry: entry.number, reverse=is_lifo)

    def is_visible(self, entry: Entry) -> bool:
        return entry.receipt is None and entry.visible_at_s <= self.clock.now_s()

    def domain(self, queue: Queue, entry: Entry) -> object:
        """What must stay in order with it; an entry of no domain is its own."""
        group = entry.message.group if self.capabilities.has_groups else None
        return group or ("all" if queue.spec.ordering_guarantee else entry)

    def is_blocked(self, queue: Queue, entry: Entry) -> bool:
        domain = self.domain(queue, entry)
        if domain is entry:
            return False
        return any(
            other.number < entry.number and self.domain(queue, other) == domain
            for other in queue.entries
        )

    def token(self, entry: Entry) -> str:
        return f"receipt-{next(self.numbers)}"

    def take(self, queue: Queue, max_count: int, lease_s: float) -> list[Delivery]:
        most = min(max_count, self.capabilities.receive_batch)
        chosen = list(itertools.islice(self.ready(queue), most))
        return [self.lease(queue, entry, lease_s) for entry in chosen]

    def ready(self, queue: Queue) -> Iterator[Entry]:
        for entry in self.candidates(queue):
            is_held_back = self.is_blocked(queue, entry) or self.is_in_a_session(queue, entry)
            if self.is_visible(entry) and not is_held_back:
                yield entry

    def is_in_a_session(self, queue: Queue, entry: Entry) -> bool:
        return entry.message.group in queue.locks

    def lease(self, queue: Queue, entry: Entry, lease_s: float) -> Delivery:
        entry.attempt += 1
        entry.receipt = self.token(entry)
        entry.leased_at_s = self.clock.now_s()
        entry.visible_at_s = min(self.clock.now_s() + lease_s, self.last_moment_s(entry))
        return Delivery(
            message=entry.message,
            queue=queue.spec.name,
            receipt=entry.receipt,
            attempt=entry.attempt,
            lease_expires_at_s=entry.visible_at_s,
            broker_id=entry.number,
        )

    def last_moment_s(self, entry: Entry) -> float:
        limit_s = self.capabilities.max_lease_s
        return float("inf") if limit_s is None else entry.leased_at_s + limit_s

    async def wait(self, until_s: float) -> None:
        """Return at a change, at the next moment that may bring one, at `until_s` at last."""
        moments = [e.visible_at_s for q in self.stock.values() for e in q.entries]
        moments += [lock.until_s for q in self.stock.values() for lock in q.locks.values()]
        soonest_s = min([until_s, *(m for m in moments if m > self.clock.now_s())])
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with self.clock.timeout(soonest_s - self.clock.now_s()):
                    await waiter
        finally:
            self.waiters.discard(waiter)

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Settling.

    def holder(self, queue: Queue, receipt: str) -> Entry | None:
        return next((entry for entry in queue.entries if entry.receipt == receipt), None)

    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        match action:
            case Ack():
                queue.entries.remove(entry)
            case Defer(delay_s):
                self.give_back(queue, entry, self.granted_s(delay_s))
            case Abandon():
                entry.attempt -= 1
                self.give_back(queue, entry, 0.0)

    def count_requests(self, settlements: int) -> None:
        self.settle_requests += -(-settlements // self.capabilities.settle_batch)

    def granted_s(self, delay_s: float) -> float:
        limit_s = self.capabilities.max_defer_s
        return delay_s if limit_s is None else min(delay_s, limit_s)

    def prolong(self, entry: Entry, lease_s: float) -> None:
        entry.visible_at_s = min(self.clock.now_s() + lease_s, self.last_moment_s(entry))

    def give_back(self, queue: Queue, entry: Entry, delay_s: float) -> None:
        entry.receipt = None
        entry.visible_at_s = self.clock.now_s() + delay_s
        if self.moves_dead_letters() and entry.attempt >= (
            queue.spec.max_receive_count or entry.attempt + 1
        ):
            self.dead_letter(queue, entry)

    def moves_dead_letters(self) -> bool:
        return self.capabilities.has_native_redrive

    def dead_letter(self, queue: Queue, entry: Entry) -> None:
        queue.entries.remove(entry)
        self.add(self.stock[queue.spec.dead_letter_queue or ""], entry.message, 0.0)

    def sweep(self) -> None:
        """Take back every lease that ran out."""
        for queue in self.stock.values():
            self.sessions.sweep(queue)
            for entry in list(queue.entries):
                if not self.ends_leases():
                    continue
                if entry.receipt is not None and entry.visible_at_s <= self.clock.now_s():
                    self.give_back(queue, entry, 0.0)

    def ends_leases(self) -> bool:
        return self.capabilities.has_lease_expiry

    # Looking.

    def stats(self, queue: Queue) -> QueueStats:
        visible = sum(map(self.is_visible, queue.entries))
        in_flight = sum(entry.receipt is not None for entry in queue.entries)
        oldest_s = min((entry.sent_at_s for entry in queue.entries), default=None)
        return QueueStats(
            name=queue.spec.name,
            visible=visible,
            in_flight=in_flight,
            delayed=len(queue.entries) - visible - in_flight,
            oldest_age_s=None if oldest_s is None else self.clock.now_s() - oldest_s,
        )

    def show(self, queue: Queue) -> Iterator[Message]:
        return (entry.message for entry in self.candidates(queue) if self.is_visible(entry))

    def empty(self, queue: Queue) -> int:
        count = len(queue.entries)
        queue.entries.clear()
        return count
