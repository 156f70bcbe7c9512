"""Context: what the parts of one queue share, and how they make leases."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import attrs
from msgspec.structs import replace

from pump.clock import Clock
from pump.message import Delivery, Message

from ..layout import QueueDescription, S3QueueSettings, Surroundings
from ..store.objects import ObjectStore, Reply, Request, Steps, Unknown, WriteConflict, drive
from .catalogue import Catalogue
from .choosing import Choosing
from .codec import BatchId, LeaseObject
from .protocol import LeaseHandle
from .slots import Slot


@attrs.define(kw_only=True, eq=False)
class LeaseQueueContext:
    """One queue in one process."""

    facts: QueueDescription
    around: Surroundings
    settings: S3QueueSettings
    driver: ProtocolDriver
    catalogue: Catalogue
    choosing: Choosing
    held_leases: HeldLeases
    owner: str

    @property
    def now_s(self) -> float:
        """The local time, which deadlines are in."""
        return self.around.clock.now_s()

    @property
    def earliest_s(self) -> float:
        """The store's time, at the earliest: what is over by it is over."""
        return self.around.time.earliest_s()

    def is_last(self, attempt: int) -> bool:
        """Whether the queue gives up on a message after this delivery."""
        limit = self.facts.max_receive_count
        return limit is not None and attempt >= limit

    def claim(self, before: LeaseObject | None, lease_s: float) -> LeaseObject:
        """The lease of a claim. One for a dead letter counts no further delivery."""
        attempt = 0 if before is None else before.attempt
        return LeaseObject(
            token=self.around.new_id(),
            owner=self.owner,
            expires_s=self.around.time.end_s(lease_s),
            attempt=attempt if self.is_last(attempt) else attempt + 1,
            fence=1 if before is None else before.fence + 1,
            nonce=self.around.new_id(),
        )

    def deadline_s(self, lease: LeaseObject, *, asked_at_s: float, lease_s: float) -> float:
        """Until when, by the local clock, a lease that was written may be counted on."""
        by_the_store_s = self.now_s + lease.expires_s - self.around.time.latest_s()
        # The second is less only if the clock stood still, with the machine, before it was asked.
        return min(asked_at_s + lease_s, by_the_store_s)

    def renewal(self, lease: LeaseObject, lease_s: float) -> LeaseObject:
        """The same claim with another end."""
        expires_s = self.around.time.end_s(lease_s)
        return replace(lease, expires_s=expires_s, nonce=self.around.new_id())

    def release(self, lease: LeaseObject, delay_s: float, *, is_counted: bool) -> LeaseObject:
        """A lease without an owner: the message may be claimed after `delay_s`."""
        return replace(
            lease,
            token="",
            owner="",
            expires_s=self.around.time.latest_s() + delay_s if delay_s > 0 else 0.0,
            attempt=lease.attempt if is_counted else lease.attempt - 1,
            nonce=self.around.new_id(),
        )

    def note_release(self, held: HeldLease, etag: str, lease: LeaseObject) -> None:
        """Put a message that was handed back where it belongs."""
        self.held_leases.forget(held)
        if lease.expires_s:
            self.catalogue.note_lease(held.slot, etag, lease, is_own=True)
        else:
            self.catalogue.note_ready(held.slot, etag, lease)

    def note_loss(self, held: HeldLease) -> None:
        """Another process has it, or had it last."""
        self.held_leases.forget(held)
        self.catalogue.note_foreign_lease(held.slot, self.earliest_s)


# Held leases: those this process has handed out, by receipt, and whether they are still valid.

_SWEEP_FROM = 1024


@attrs.define(eq=False, kw_only=True)
class HeldLease:
    """A lease that is held. Its writes are sequential: each needs the ETag of the one before."""

    slot: Slot
    batch: BatchId
    message: Message = attrs.field(repr=False)
    key: str
    etag: str
    lease: LeaseObject
    deadline_s: float
    """By the local clock, from before the lease was written: this process lets go first."""
    is_dead: bool = False
    """Whether it was claimed only to be moved to the dead-letter queue."""
    is_over: bool = False
    """Settled, being settled, or lost."""
    is_doubtful: bool = False
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock, repr=False)

    @property
    def receipt(self) -> str:
        """What its delivery is settled by: the token, which no other claim ever has."""
        return self.lease.token

    @property
    def handle(self) -> LeaseHandle:
        """What the protocols work with."""
        return LeaseHandle(
            key=self.key, etag=self.etag, lease=self.lease, is_doubtful=self.is_doubtful
        )

    def is_valid(self, now_s: float) -> bool:
        """Whether it may be settled or extended."""
        return not self.is_over and now_s < self.deadline_s

    def delivery(self, queue: str) -> Delivery:
        """What a consumer gets."""
        return Delivery(
            message=self.message,
            queue=queue,
            receipt=self.receipt,
            attempt=self.lease.attempt,
            lease_expires_at_s=self.deadline_s,
            is_ordered=False,
            broker_id=str(self.slot.id),
        )


class HeldLeases:
    """All of them. What was never settled is forgotten some time after it ran out."""

    def __init__(self) -> None:
        self._by_receipt: dict[str, HeldLease] = {}
        self._sweep_at = _SWEEP_FROM

    def add(self, held: HeldLease, now_s: float) -> None:
        """Hand one out."""
        if len(self._by_receipt) >= self._sweep_at:
            self._sweep(now_s)
        self._by_receipt[held.receipt] = held

    def find(self, receipt: str, now_s: float) -> HeldLease | None:
        """The lease of a receipt, if it may still be used."""
        held = self._by_receipt.get(receipt)
        return held if held is not None and held.is_valid(now_s) else None

    def forget(self, held: HeldLease) -> None:
        """It was settled, or lost."""
        held.is_over = True
        self._by_receipt.pop(held.receipt, None)

    def _sweep(self, now_s: float) -> None:
        for held in list(self._by_receipt.values()):
            if now_s >= held.deadline_s:
                self.forget(held)
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._by_receipt))


# The protocol driver performs protocols on a store, with a pause where it did not decide.

_T = TypeVar("_T")
_PAUSE_S = 0.1
_MAX_AT_ONCE = 64
"""How many requests of a queue are under way at once, claims and settlements together."""


class ProtocolDriver:
    """Performs protocols, many at once but not too many."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._gate = asyncio.Semaphore(_MAX_AT_ONCE)

    async def run(self, steps: Steps[_T]) -> _T:
        """Perform a protocol to its end."""
        return await drive(steps, self)

    async def perform(self, request: Request) -> Reply:
        """One request; a protocol asks again by itself, so only the pause is added."""
        async with self._gate:
            reply = await self._store.perform(request)
        if isinstance(reply, WriteConflict | Unknown):
            await self._clock.sleep(_PAUSE_S * (0.5 + self._clock.chance()))
        return reply
