"""Deliveries from what the service gives out. Pure."""

from __future__ import annotations

from pump.message import Delivery

from .leases import Lease, Terms
from .wire import Arrival, attempt_of, decode, native_of, stored_id_of


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
