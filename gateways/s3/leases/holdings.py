"""Holdings: the leases this process has handed out, by receipt, and who may still use them."""

from __future__ import annotations

import asyncio

import attrs

from pump.message import Delivery, Message

from .codec import Lease
from .names import BatchId
from .protocol.tenancy import Tenancy
from .slots import Slot

_SWEEP_FROM = 1024


@attrs.define(eq=False, kw_only=True)
class Holding:
    """A lease in hand. Its writes follow one another: each needs the ETag of the one before."""

    slot: Slot
    batch: BatchId
    message: Message = attrs.field(repr=False)
    key: str
    etag: str
    lease: Lease
    deadline_s: float
    """By the local clock, from before the lease was written: this process lets go first."""
    is_burial: bool = False
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
    def tenancy(self) -> Tenancy:
        """As the protocols want it."""
        return Tenancy(key=self.key, etag=self.etag, lease=self.lease, is_doubtful=self.is_doubtful)

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


class Holdings:
    """All of them. What was never settled is forgotten some time after it ran out."""

    def __init__(self) -> None:
        self._by_receipt: dict[str, Holding] = {}
        self._sweep_at = _SWEEP_FROM

    def add(self, holding: Holding, now_s: float) -> None:
        """Hand one out."""
        if len(self._by_receipt) >= self._sweep_at:
            self._sweep(now_s)
        self._by_receipt[holding.receipt] = holding

    def find(self, receipt: str, now_s: float) -> Holding | None:
        """The holding of a receipt, if it may still be used."""
        holding = self._by_receipt.get(receipt)
        return holding if holding is not None and holding.is_valid(now_s) else None

    def forget(self, holding: Holding) -> None:
        """It was settled, or lost."""
        holding.is_over = True
        self._by_receipt.pop(holding.receipt, None)

    def forget_all(self) -> None:
        """The queue was purged."""
        for holding in list(self._by_receipt.values()):
            self.forget(holding)

    def _sweep(self, now_s: float) -> None:
        for holding in list(self._by_receipt.values()):
            if now_s >= holding.deadline_s:
                self.forget(holding)
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._by_receipt))
