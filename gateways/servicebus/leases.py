"""Leases: what is in flight of one queue, and until when. Pure.

The service locks a message for the queue's `LockDuration`, and renews by the same. A lease is
whatever its subscription says, so it has an end of its own. Where the lease ends first, the
message is handed back then; where the lock does, it is renewed meanwhile.

| a lease is | when                                        | and then                             |
|------------|---------------------------------------------|--------------------------------------|
| due        | half of its lock is over, its end far       | the lock is renewed                  |
| resting    | deferred where no copy can be sent          | its end is when the delay is over    |
| over       | its end has passed, its lock's has not      | the message is handed back           |
| gone       | its lock is over                            | it is forgotten                      |
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pump.message import Delivery

from .._kit.leases import Lease, WatchedLeases
from .wire import ServiceBusArrival, attempt_of, decode, native_of, stored_id_of

EDGE_S = 0.1
"""An end this close to the lock's own is left to the service."""


@attrs.frozen(kw_only=True)
class LockTerms:
    """What a subscription says about the leases of its queue."""

    lease_s: float
    max_receive_count: int | None = None


class LockedLease(Lease, eq=False, kw_only=True):
    """What the service has locked for us, and what we hold for as long as we said."""

    lock_s: float
    lock_ends_at_s: float

    @property
    def looks_at_s(self) -> float:
        if self.lock_ends_at_s < self.ends_at_s:
            return self.lock_ends_at_s - self.lock_s / 2
        return self.ends_at_s

    @property
    def expires_at_s(self) -> float:
        """From when on it may not be used, unless something is done."""
        return min(self.ends_at_s, self.lock_ends_at_s)

    def is_over(self, now_s: float) -> bool:
        return self.expires_at_s <= now_s

    def renewed(self, lock_s: float, now_s: float) -> None:
        """The service has granted another lock."""
        self.lock_s = max(lock_s, 0.0)
        self.lock_ends_at_s = now_s + self.lock_s


class ServiceBusLease(LockedLease, eq=False, kw_only=True):
    """One delivery in flight."""

    delivery: Delivery
    arrival: ServiceBusArrival
    terms: LockTerms
    is_resting: bool = False
    is_unanswered: bool = False
    """A settlement went out, and what became of it is not known."""
    copy: int | None = None
    """The number of the scheduled copy that is to take its place."""

    def is_over(self, now_s: float) -> bool:
        """For its receiver it is over while it rests."""
        return self.is_resting or self.expires_at_s <= now_s

    @property
    def is_last(self) -> bool:
        """Whether this delivery is the last that the message gets."""
        limit = self.terms.max_receive_count
        return limit is not None and self.delivery.attempt >= limit

    @property
    def is_last_to_service(self) -> bool:
        """Whether the service gives it up when it is handed back, tried or not."""
        limit = self.terms.max_receive_count
        return limit is not None and self.arrival.delivery_count + 1 >= limit


class ServiceBusLeases(WatchedLeases[ServiceBusLease]):
    """The leases of one queue in this gateway."""

    def rest(self, lease: ServiceBusLease, until_s: float) -> None:
        """It is settled for its receiver, and held until then."""
        lease.is_taken, lease.is_resting = False, True
        lease.ends_at_s = until_s
        self.watch(lease.delivery.receipt)

    def sort_due(
        self, due: Sequence[ServiceBusLease], now_s: float
    ) -> tuple[list[ServiceBusLease], list[ServiceBusLease]]:
        """What must be renewed now, and what is over and must be handed back, taken.

        What the service has taken back itself is forgotten.
        """
        to_renew: list[ServiceBusLease] = []
        over: list[ServiceBusLease] = []
        for lease in due:
            has_ended = lease.ends_at_s <= now_s
            if lease.lock_ends_at_s <= now_s + (EDGE_S if has_ended else 0):
                self.spend(lease.delivery.receipt)
            elif has_ended:
                lease.is_taken = True
                over.append(lease)
            else:
                to_renew.append(lease)
        return to_renew, over


# Deliveries from what the service gives out. Pure.


def delivery_of(
    arrival: ServiceBusArrival, *, queue: str, lease_ends_at_s: float, is_ordered: bool = False
) -> Delivery:
    """The delivery of a message. Only a session keeps the order of a group."""
    return Delivery(
        message=decode(arrival),
        queue=queue,
        receipt=arrival.token,
        attempt=attempt_of(arrival, queue=queue),
        lease_expires_at_s=lease_ends_at_s,
        is_ordered=is_ordered,
        broker_id=stored_id_of(arrival),
        native=native_of(arrival),
    )


def lease_of(
    arrival: ServiceBusArrival, *, queue: str, terms: LockTerms, locked_at_s: float, now_s: float
) -> ServiceBusLease:
    """The lease of a message that has arrived by now, and was locked no earlier than then."""
    ends_at_s = locked_at_s + terms.lease_s
    return ServiceBusLease(
        delivery=delivery_of(arrival, queue=queue, lease_ends_at_s=ends_at_s),
        arrival=arrival,
        terms=terms,
        ends_at_s=ends_at_s,
        lock_s=arrival.lock_s,
        lock_ends_at_s=now_s + arrival.lock_s,
    )
