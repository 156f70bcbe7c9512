"""The desk: what the parts of one queue share, and how they make leases."""

from __future__ import annotations

import attrs
from msgspec.structs import replace

from ..layout import QueueFacts, S3QueueSettings, Surroundings
from .catalogue import Catalogue
from .choosing import Choosing
from .codec import Lease
from .holdings import Holding, Holdings
from .patience import Driver


@attrs.define(kw_only=True, eq=False)
class Desk:
    """One queue in one process."""

    facts: QueueFacts
    around: Surroundings
    settings: S3QueueSettings
    driver: Driver
    catalogue: Catalogue
    choosing: Choosing
    holdings: Holdings
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

    def claim(self, before: Lease | None, lease_s: float) -> Lease:
        """The lease of a claim. One for a burial counts no further delivery."""
        attempt = 0 if before is None else before.attempt
        return Lease(
            token=self.around.new_id(),
            owner=self.owner,
            expires_s=self.around.time.end_s(lease_s),
            attempt=attempt if self.is_last(attempt) else attempt + 1,
            fence=1 if before is None else before.fence + 1,
            nonce=self.around.new_id(),
        )

    def deadline_s(self, lease: Lease, *, asked_at_s: float, lease_s: float) -> float:
        """Until when, by the local clock, a lease that was written may be counted on."""
        by_the_store_s = self.now_s + lease.expires_s - self.around.time.latest_s()
        # The second is less only if the clock stood still, with the machine, before it was asked.
        return min(asked_at_s + lease_s, by_the_store_s)

    def renewal(self, lease: Lease, lease_s: float) -> Lease:
        """The same tenancy with another end."""
        expires_s = self.around.time.end_s(lease_s)
        return replace(lease, expires_s=expires_s, nonce=self.around.new_id())

    def release(self, lease: Lease, delay_s: float, *, is_counted: bool) -> Lease:
        """Nobody's any more, and to be had after `delay_s`."""
        return replace(
            lease,
            token="",
            owner="",
            expires_s=self.around.time.latest_s() + delay_s if delay_s > 0 else 0.0,
            attempt=lease.attempt if is_counted else lease.attempt - 1,
            nonce=self.around.new_id(),
        )

    def note_release(self, holding: Holding, etag: str, lease: Lease) -> None:
        """Put a message that was handed back where it belongs."""
        self.holdings.forget(holding)
        if lease.expires_s:
            self.catalogue.note_lease(holding.slot, etag, lease, is_own=True)
        else:
            self.catalogue.note_ready(holding.slot, etag, lease)

    def note_loss(self, holding: Holding) -> None:
        """Somebody else has it, or had it last."""
        self.holdings.forget(holding)
        self.catalogue.note_stranger(holding.slot, self.earliest_s)
