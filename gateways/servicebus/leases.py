"""Leases: what is held of one queue, and until when. Pure.

The service locks a message for the queue's `LockDuration`, and renews by the same. A lease is
whatever its subscription says, so it has an end of its own. Where the lease ends first, the
message is handed back then; where the lock does, it is renewed meanwhile.

| a lease is | when                                        | and then                             |
|------------|---------------------------------------------|--------------------------------------|
| held       | received, its end and its lock's are ahead  | it may be settled or extended        |
| taken      | a settlement of it is on its way            | nothing else may happen to it        |
| held again | the service was not told after all          |                                      |
| due        | half of its lock is over, its end far       | the lock is renewed                  |
| resting    | deferred where no copy can be sent          | its end is when the delay is over    |
| over       | its end has passed, its lock's has not      | the message is handed back           |
| gone       | settled, handed back, or its lock is over   | every later use of it is refused     |
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import attrs

from pump.message import Delivery

from .wire import Arrival, attempt_of, decode, native_of, stored_id_of

EDGE_S = 0.1
"""An end this close to the lock's own is left to the service."""


@attrs.frozen(kw_only=True)
class Terms:
    """What a subscription says about the leases of its queue."""

    lease_s: float
    max_receive_count: int | None = None


@attrs.define(eq=False, kw_only=True)
class Hold:
    """Something that the service has locked for us, and that we hold for as long as we said."""

    ends_at_s: float
    lock_s: float
    lock_ends_at_s: float

    @property
    def looks_at_s(self) -> float:
        """When something has to be done about it."""
        if self.lock_ends_at_s < self.ends_at_s:
            return self.lock_ends_at_s - self.lock_s / 2
        return self.ends_at_s

    @property
    def expires_at_s(self) -> float:
        """From when on it may not be used, unless something is done."""
        return min(self.ends_at_s, self.lock_ends_at_s)

    def is_over(self, now_s: float) -> bool:
        """Whether it may not be used any more."""
        return self.expires_at_s <= now_s

    def renewed(self, lock_s: float, now_s: float) -> None:
        """The service has granted another lock."""
        self.lock_s = max(lock_s, 0.0)
        self.lock_ends_at_s = now_s + self.lock_s


@attrs.define(eq=False, kw_only=True)
class Lease(Hold):
    """One delivery in hand."""

    delivery: Delivery
    arrival: Arrival
    terms: Terms
    is_taken: bool = False
    is_resting: bool = False
    is_unanswered: bool = False
    """A settlement went out, and nobody knows what became of it."""
    copy: int | None = None
    """The number of the scheduled copy that is to take its place."""

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


class Leases:
    """The leases of one queue in this gateway, whichever consumer received them."""

    def __init__(self) -> None:
        self._held: dict[str, Lease] = {}
        self._looks: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._held.values()))

    def hold(self, lease: Lease) -> None:
        """Enter what was received."""
        self._held[lease.delivery.receipt] = lease
        self.watch(lease, lease.looks_at_s)

    def watch(self, lease: Lease, at_s: float) -> None:
        """Look at it then."""
        heapq.heappush(self._looks, (at_s, lease.delivery.receipt))

    def find(self, receipt: str, now_s: float) -> Lease | None:
        """The lease of a receipt that is ours and nobody's settlement, as far as we know."""
        lease = self._held.get(receipt)
        if lease is None or lease.is_taken or lease.is_resting or lease.is_over(now_s):
            return None
        return lease

    def prolong_taken(self, receipt: str, now_s: float, lease_s: float) -> bool:
        """Move the end of what is being settled, in case that does not come about; False when
        it is not ours. Its lock is left alone: what the service is asked now may cross with it.
        """
        lease = self._held.get(receipt)
        if lease is None or not lease.is_taken or lease.is_over(now_s):
            return False
        lease.ends_at_s = now_s + lease_s
        return True

    def take(self, receipt: str, now_s: float) -> Lease | None:
        """The lease, taken for a settlement; None when it is not to be had."""
        lease = self.find(receipt, now_s)
        if lease is not None:
            lease.is_taken = True
        return lease

    def give_back(self, lease: Lease) -> None:
        """The settlement did not come about: it may be tried again."""
        lease.is_taken = False
        self.watch(lease, lease.looks_at_s)

    def rest(self, lease: Lease, until_s: float) -> None:
        """It is settled for who received it, and held until then."""
        lease.is_taken, lease.is_resting = False, True
        lease.ends_at_s = until_s
        self.watch(lease, lease.looks_at_s)

    def spend(self, lease: Lease) -> None:
        """The message is settled, or no longer ours."""
        self._held.pop(lease.delivery.receipt, None)

    def next_look_s(self) -> float | None:
        """When to look next, None while nothing is held."""
        while self._looks and self._looks[0][1] not in self._held:
            heapq.heappop(self._looks)
        return self._looks[0][0] if self._looks else None

    def due(self, now_s: float) -> tuple[list[Lease], list[Lease]]:
        """What must be renewed now, and what is over and must be handed back, taken.

        What the service has taken back itself is forgotten.
        """
        to_renew: dict[str, Lease] = {}
        over: list[Lease] = []
        while (look_s := self.next_look_s()) is not None and look_s <= now_s:
            lease = self._held[heapq.heappop(self._looks)[1]]
            if lease.is_taken:
                continue
            if lease.lock_ends_at_s <= now_s + (EDGE_S if lease.ends_at_s <= now_s else 0):
                self.spend(lease)
            elif lease.ends_at_s <= now_s:
                lease.is_taken = True
                over.append(lease)
            elif lease.looks_at_s <= now_s:
                to_renew[lease.delivery.receipt] = lease
            else:
                self.watch(lease, lease.looks_at_s)
        return list(to_renew.values()), over


# Deliveries from what the service gives out. Pure.


def delivery_of(
    arrival: Arrival, *, queue: str, lease_ends_at_s: float, is_ordered: bool = False
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
    arrival: Arrival, *, queue: str, terms: Terms, locked_at_s: float, now_s: float
) -> Lease:
    """The lease of a message that has arrived by now, and was locked no earlier than then."""
    ends_at_s = locked_at_s + terms.lease_s
    return Lease(
        delivery=delivery_of(arrival, queue=queue, lease_ends_at_s=ends_at_s),
        arrival=arrival,
        terms=terms,
        ends_at_s=ends_at_s,
        lock_s=arrival.lock_s,
        lock_ends_at_s=now_s + arrival.lock_s,
    )
