"""A lease ends when it says so, whatever the queue's lock lasts."""

from __future__ import annotations

from gateways.servicebus.leases import Lease, Leases, Terms
from gateways.servicebus.wire import Arrival, Parcel
from pump.message import Delivery, Message


def a_lease(receipt: str = "r", *, ends: float, lock: float, limit: int | None = None) -> Lease:
    delivery = Delivery(
        message=Message(body=b""), queue="q", receipt=receipt, attempt=2, lease_expires_at_s=ends
    )
    arrival = Arrival(parcel=Parcel(body=b""), token=receipt, sequence=1)
    terms = Terms(lease_s=ends, max_receive_count=limit)
    return Lease(
        delivery=delivery,
        arrival=arrival,
        terms=terms,
        ends_at_s=ends,
        lock_s=lock,
        lock_ends_at_s=lock,
    )


def holding(*leases: Lease) -> Leases:
    held = Leases()
    for lease in leases:
        held.hold(lease)
    return held


def test_when_the_lease_ends_before_the_lock_then_the_message_is_to_be_handed_back() -> None:
    lease = a_lease(ends=3, lock=5)
    leases = holding(lease)

    assert leases.due(2.9) == ([], [])
    assert leases.due(3) == ([], [lease])
    assert leases.take("r", 3) is None


def test_when_the_lock_ends_before_the_lease_then_it_is_to_be_renewed_at_half_time() -> None:
    lease = a_lease(ends=60, lock=10)
    leases = holding(lease)

    assert leases.due(4.9) == ([], [])
    assert leases.due(5) == ([lease], [])


def test_when_a_lock_is_renewed_then_the_next_look_is_at_its_half_or_the_end() -> None:
    lease = a_lease(ends=12, lock=10)

    lease.renewed(10, now_s=5)

    assert lease.looks_at_s == 12


def test_when_both_end_together_then_it_is_left_to_the_service() -> None:
    leases = holding(a_lease(ends=5, lock=5))

    assert leases.due(5) == ([], [])
    assert len(leases) == 0


def test_when_the_lock_is_over_then_every_use_is_refused() -> None:
    leases = holding(a_lease(ends=60, lock=10))

    assert leases.find("r", 9.9) is not None
    assert leases.find("r", 10) is None
    assert leases.due(10) == ([], [])
    assert len(leases) == 0


def test_when_a_settlement_is_on_its_way_then_nothing_else_happens_to_the_lease() -> None:
    lease = a_lease(ends=3, lock=5)
    leases = holding(lease)

    assert leases.take("r", 1) is lease
    assert leases.take("r", 1) is None
    assert leases.due(4) == ([], [])
    leases.give_back(lease)
    assert leases.due(4) == ([], [lease])


def test_when_a_lease_is_spent_then_it_is_never_looked_at_again() -> None:
    lease = a_lease(ends=3, lock=5)
    leases = holding(lease)

    leases.spend(lease)

    assert leases.next_look_s() is None
    assert list(leases) == []


def test_when_a_delivery_is_the_last_then_its_lease_knows() -> None:
    assert a_lease(ends=1, lock=1, limit=2).is_last
    assert not a_lease(ends=1, lock=1, limit=3).is_last
    assert not a_lease(ends=1, lock=1).is_last
