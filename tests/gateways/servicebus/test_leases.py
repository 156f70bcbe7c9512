"""A lease ends when it says so, whatever the queue's lock lasts."""

from __future__ import annotations

from gateways.servicebus.settling import LockTerms, ServiceBusLease, ServiceBusLeases
from gateways.servicebus.wire import ServiceBusArrival, ServiceBusParcel
from pump.message import Delivery, Message
from pump.testing import VirtualClock


def a_lease(
    receipt: str = "r", *, ends: float, lock: float, limit: int | None = None
) -> ServiceBusLease:
    delivery = Delivery(
        message=Message(body=b""), queue="q", receipt=receipt, attempt=2, lease_expires_at_s=ends
    )
    arrival = ServiceBusArrival(parcel=ServiceBusParcel(body=b""), token=receipt, sequence=1)
    terms = LockTerms(lease_s=ends, max_receive_count=limit)
    return ServiceBusLease(
        delivery=delivery,
        arrival=arrival,
        terms=terms,
        ends_at_s=ends,
        lock_s=lock,
        lock_ends_at_s=lock,
    )


class Watched:
    """Leases from time 0 on, and what was found to be due."""

    def __init__(self, *leases: ServiceBusLease) -> None:
        self.clock = VirtualClock(starts_at_s=0.0)
        self.leases = ServiceBusLeases(self.clock, self._act)
        self.to_renew: list[ServiceBusLease] = []
        self.over: list[ServiceBusLease] = []
        for lease in leases:
            self.leases.hold(lease.delivery.receipt, lease)

    async def until(self, at_s: float) -> Watched:
        await self.clock.advance(at_s - self.clock.now_s())
        return self

    def _act(self, due: list[ServiceBusLease]) -> None:
        to_renew, over = self.leases.sort_due(due, self.clock.now_s())
        self.to_renew += to_renew
        self.over += over


async def test_when_the_lease_ends_before_the_lock_then_the_message_is_to_be_handed_back() -> None:
    lease = a_lease(ends=3, lock=5)

    watched = await Watched(lease).until(2.9)
    before = [*watched.over]
    await watched.until(3)

    assert (before, watched.over, watched.to_renew) == ([], [lease], [])
    assert watched.leases.take("r", 3) is None


async def test_when_the_lock_ends_before_the_lease_then_it_is_to_be_renewed_at_half_time() -> None:
    lease = a_lease(ends=60, lock=10)

    watched = await Watched(lease).until(4.9)
    before = [*watched.to_renew]
    await watched.until(5)

    assert (before, watched.to_renew, watched.over) == ([], [lease], [])


def test_when_a_lock_is_renewed_then_the_next_look_is_at_its_half_or_the_end() -> None:
    lease = a_lease(ends=12, lock=10)

    lease.renewed(10, now_s=5)

    assert lease.looks_at_s == 12


async def test_when_both_end_together_then_it_is_left_to_the_service() -> None:
    watched = await Watched(a_lease(ends=5, lock=5)).until(5)

    assert (watched.to_renew, watched.over) == ([], [])
    assert len(watched.leases) == 0


async def test_when_the_lock_is_over_then_every_use_is_refused() -> None:
    """Nothing has renewed it."""
    watched = Watched(a_lease(ends=60, lock=10))

    assert watched.leases.find("r", 9.9) is not None
    assert watched.leases.find("r", 10) is None
    await watched.until(5)
    watched.leases.watch("r", at_s=10)
    await watched.until(10)

    assert len(watched.leases) == 0


async def test_when_a_lease_rests_then_it_is_refused_and_handed_back_when_the_delay_is_over() -> (
    None
):
    lease = a_lease(ends=3, lock=60)
    watched = Watched(lease)
    watched.leases.take("r", 1)

    watched.leases.rest(lease, 8)
    refused = watched.leases.take("r", 1)
    await watched.until(7.9)
    before = [*watched.over]
    await watched.until(8)

    assert refused is None
    assert (before, watched.over) == ([], [lease])


def test_when_a_delivery_is_the_last_then_its_lease_knows() -> None:
    assert a_lease(ends=1, lock=1, limit=2).is_last
    assert not a_lease(ends=1, lock=1, limit=3).is_last
    assert not a_lease(ends=1, lock=1).is_last
