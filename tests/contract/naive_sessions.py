"""Sessions of the naive gateway: a lock a group, decided by looking at the clock.

Each decision is one method of `NaiveSessions`, for saboteurs to spoil.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from pump.errors import InvalidReceipt, SessionLockLost, UnsupportedOperation
from pump.message import Delivery
from pump.outcome import ABANDON, Refusal, Settlement
from pump.subscription import Subscription

if TYPE_CHECKING:
    from .naive import Entry, NaiveGateway, Queue


@attrs.define(eq=False)
class Lock:
    """Who has a group, and until when."""

    group: str
    until_s: float


@attrs.define(eq=False)
class NaiveSessions:
    """Accepts sessions, and knows which groups are locked."""

    gateway: NaiveGateway

    async def accept(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> NaiveSession | None:
        self.check_choice(session)
        clock = self.gateway.clock
        until_s = clock.now_s() + wait_s
        while True:
            queue = self.gateway.find(subscription.queue)
            group = next(self.free(queue), None) if session is None else session
            if group is not None and not self.is_locked(queue, group):
                return self.open(queue, group, subscription)
            if clock.now_s() >= until_s:
                return None
            await self.gateway.wait(until_s)

    def check_choice(self, session: str | None) -> None:
        if session is not None and not self.gateway.capabilities.has_session_choice:
            raise UnsupportedOperation("naive", "choosing a session", "it was not told to")

    def free(self, queue: Queue) -> Iterator[str]:
        """The groups that have something to do and that nobody has."""
        for entry in self.gateway.ready(queue):
            if entry.message.group is not None:
                yield entry.message.group

    def is_locked(self, queue: Queue, group: str) -> bool:
        """Whether somebody has it: by a lock, or by messages in flight."""
        return group in queue.locks or any(
            entry.receipt is not None and entry.message.group == group for entry in queue.entries
        )

    def open(self, queue: Queue, group: str, subscription: Subscription) -> NaiveSession:
        lease_s = subscription.lease.total_seconds()
        lock = queue.locks[group] = Lock(group, self.gateway.clock.now_s() + lease_s)
        return self.gateway.Session(self.gateway, queue.spec.name, lock, lease_s)

    def sweep(self, queue: Queue) -> None:
        """Take back every lock that ran out, with what was received under it."""
        now_s = self.gateway.clock.now_s()
        for lock in [each for each in queue.locks.values() if each.until_s <= now_s]:
            self.end(queue, lock)

    def end(self, queue: Queue, lock: Lock) -> None:
        del queue.locks[lock.group]

    def close(self) -> None:
        """Let go of every session, with what is in hand."""
        for queue in self.gateway.stock.values():
            for group in list(queue.locks):
                del queue.locks[group]
                for entry in queue.entries:
                    if entry.receipt is not None and entry.message.group == group:
                        self.gateway.apply(queue, entry, ABANDON)
        self.gateway.wake()


@attrs.define(eq=False)
class NaiveSession:
    """One group, locked; its messages are leased for as long as the lock."""

    gateway: NaiveGateway
    name: str
    lock: Lock
    lease_s: float

    @property
    def id(self) -> str:
        return self.lock.group

    @property
    def lock_expires_at_s(self) -> float | None:
        return self.lock.until_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        clock = self.gateway.clock
        until_s = clock.now_s() + wait_s
        while True:
            queue = self.held_queue()
            entries = list(itertools.islice(self.ready(queue), max_count))
            left_s = self.lock.until_s - clock.now_s()
            taken = [self.gateway.lease(queue, entry, left_s) for entry in entries]
            if taken or clock.now_s() >= until_s:
                return taken
            await self.gateway.wait(until_s)

    def ready(self, queue: Queue) -> Iterator[Entry]:
        """What comes next; the first that is put off holds the others back."""
        for entry in self.mine(queue):
            if entry.receipt is None:
                if entry.visible_at_s > self.gateway.clock.now_s():
                    return
                yield entry

    def mine(self, queue: Queue) -> list[Entry]:
        ordered = sorted(queue.entries, key=lambda entry: entry.number)
        return [entry for entry in ordered if entry.message.group == self.lock.group]

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        queue = self.held_queue()
        refused = []
        for each in settlements:
            entry = self.gateway.holder(queue, each.delivery.receipt)
            if entry is None:
                error = InvalidReceipt(self.name, each.delivery.receipt)
                refused.append(Refusal(each.delivery, error))
            else:
                self.gateway.apply(queue, entry, each.action)
        self.gateway.wake()
        return refused

    async def renew(self) -> None:
        queue = self.held_queue()
        self.lock.until_s = self.gateway.clock.now_s() + self.lease_s
        for entry in self.in_hand(queue):
            self.gateway.prolong(entry, self.lease_s)

    async def aclose(self) -> None:
        queue = self.gateway.find(self.name)
        if self.has_lock(queue):
            for entry in self.in_hand(queue):
                self.gateway.apply(queue, entry, ABANDON)
            self.release(queue)
            self.gateway.wake()

    def release(self, queue: Queue) -> None:
        queue.locks.pop(self.lock.group, None)

    def in_hand(self, queue: Queue) -> list[Entry]:
        return [entry for entry in self.mine(queue) if entry.receipt is not None]

    def has_lock(self, queue: Queue) -> bool:
        return queue.locks.get(self.lock.group) is self.lock

    def held_queue(self) -> Queue:
        queue = self.gateway.find(self.name)
        if not self.has_lock(queue):
            raise SessionLockLost(self.name, self.id)
        return queue
