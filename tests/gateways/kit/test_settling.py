"""Settling: each delivery once, refused when late, tried again when it did not come about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs
import pytest

from gateways._kit.leases import Failures, Lease, Leases, LeaseSettler
from pump.errors import GatewayError, InvalidReceipt, LeaseLost, Throttled
from pump.message import Delivery
from pump.outcome import Settlement
from pump.testing import VirtualClock
from pump.testing.builders import a_delivery, ack


@attrs.define(eq=False)
class Broker:
    """Performs what it is asked, or fails as it was told."""

    clock: VirtualClock = attrs.Factory(VirtualClock)
    leases: Leases[Lease] = attrs.Factory(Leases)
    failures: dict[str, GatewayError] = attrs.Factory(dict)
    error: BaseException | None = None
    keeps: bool = False
    delay_s: float = 0.0
    asked: list[list[str]] = attrs.Factory(list)

    def settler(self, *, is_apart: bool = False) -> LeaseSettler[Lease]:
        start = asyncio.create_task if is_apart else None
        return LeaseSettler("orders", self.leases, self.perform, clock=self.clock, start=start)

    def hold(self, count: int) -> list[Delivery]:
        found = [a_delivery(receipt=f"r{number}") for number in range(count)]
        for each in found:
            self.leases.hold(each.receipt, Lease(self.clock.now_s() + 30.0))
        return found

    async def perform(self, settlements: Sequence[Settlement], leases: Sequence[Lease]) -> Failures:
        self.asked.append([each.delivery.receipt for each in settlements])
        if self.delay_s:
            await self.clock.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        if self.keeps:
            for each in leases:
                each.is_taken = False
        return self.failures


async def test_when_a_batch_is_settled_then_it_is_performed_at_once_and_its_leases_are_spent() -> (
    None
):
    broker = Broker()
    first, second = broker.hold(2)

    refusals = await broker.settler().settle([ack(first), ack(second)])

    assert refusals == []
    assert broker.asked == [["r0", "r1"]]
    assert len(broker.leases) == 0


async def test_when_a_delivery_is_settled_twice_then_the_second_is_refused() -> None:
    """Law 1, within a batch, while it is on its way, and after it."""
    broker = Broker(delay_s=5.0)
    [delivery] = broker.hold(1)
    settler = broker.settler()

    under_way = asyncio.create_task(settler.settle([ack(delivery), ack(delivery)]))
    await broker.clock.settle()
    [meanwhile] = await settler.settle([ack(delivery)])
    await broker.clock.advance(5.0)
    [within] = await under_way
    [after] = await settler.settle([ack(delivery)])

    assert all(each.is_final for each in (within, meanwhile, after))
    assert broker.asked == [["r0"]]


async def test_when_the_lease_is_over_then_the_broker_is_not_asked() -> None:
    """R6; law 3."""
    broker = Broker()
    [delivery] = broker.hold(1)
    await broker.clock.advance(30.0)

    [refusal] = await broker.settler().settle([ack(delivery)])

    assert isinstance(refusal.error, InvalidReceipt)
    assert (refusal.error.queue, refusal.error.receipt) == ("orders", "r0")
    assert broker.asked == []


async def test_when_some_fail_for_now_then_only_they_may_be_settled_again() -> None:
    broker = Broker(failures={"r1": Throttled("orders")})
    settler = broker.settler()
    first, second = broker.hold(2)

    [refusal] = await settler.settle([ack(first), ack(second)])
    broker.failures = {}
    [spent] = await settler.settle([ack(first), ack(second)])

    assert (refusal.delivery, refusal.is_final) == (second, False)
    assert (spent.delivery, spent.is_final) == (first, True)


@pytest.mark.parametrize("error", [InvalidReceipt("orders", "r0"), LeaseLost("orders", "r0")])
async def test_when_one_fails_for_good_then_its_lease_is_spent(error: GatewayError) -> None:
    broker = Broker(failures={"r0": error})
    [delivery] = broker.hold(1)

    [refusal] = await broker.settler().settle([ack(delivery)])

    assert refusal.error is error
    assert len(broker.leases) == 0


@pytest.mark.parametrize("error", [Throttled("orders"), TypeError("unforeseen")])
async def test_when_nothing_is_known_then_the_error_is_raised_and_all_may_be_settled_again(
    error: Exception,
) -> None:
    """Kept as taken, a lease could neither be settled nor run out."""
    broker = Broker(error=error)
    settler = broker.settler()
    [delivery] = broker.hold(1)
    with pytest.raises(type(error)):
        await settler.settle([ack(delivery)])

    broker.error = None

    assert await settler.settle([ack(delivery)]) == []


async def test_when_settling_is_cancelled_then_it_may_be_repeated() -> None:
    """Law 6."""
    broker = Broker(delay_s=5.0)
    settler = broker.settler()
    [delivery] = broker.hold(1)
    settling = asyncio.create_task(settler.settle([ack(delivery)]))
    await broker.clock.settle()
    settling.cancel()
    await broker.clock.settle()

    broker.delay_s = 0.0

    assert await settler.settle([ack(delivery)]) == []
    assert settling.cancelled()


async def test_when_settling_apart_is_cancelled_then_it_goes_on_in_the_background() -> None:
    """An SDK whose calls must not be cancelled in the middle."""
    broker = Broker(delay_s=5.0)
    [delivery] = broker.hold(1)
    settling = asyncio.create_task(broker.settler(is_apart=True).settle([ack(delivery)]))
    await broker.clock.settle()
    settling.cancel()
    await broker.clock.advance(5.0)

    assert settling.cancelled()
    assert len(broker.leases) == 0


async def test_when_a_settlement_is_performed_by_holding_it_back_then_its_lease_stays() -> None:
    broker = Broker(keeps=True)
    [delivery] = broker.hold(1)

    refusals = await broker.settler().settle([ack(delivery)])

    assert refusals == []
    assert len(broker.leases) == 1
