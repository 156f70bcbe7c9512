"""Machines that slept: their clock stood still, and they do not know until the store answers."""

from __future__ import annotations

from datetime import timedelta

from gateways.s3 import Layout
from pump.testing import ack
from pump.testing.builders import a_message, a_subscription

from .houses import House, ensure, take

SLEPT_S = 3600.0
LEASE_S = 30.0


def sleep(house: House) -> None:
    """Time passes at the store, and on nobody's monotonic clock."""
    before = house.s3.server_s
    house.s3.server_s = lambda: before() + SLEPT_S


async def test_when_a_machine_slept_before_a_receive_then_nobody_else_gets_what_it_has(
    house: House, layout: Layout
) -> None:
    """R12, T8: the lease that it asks for first is over already."""
    gateway, other = await house.gateway(layout), await house.gateway(layout)
    await ensure(gateway, "orders")
    await gateway.producer("orders").send([a_message("A")])
    await gateway.producer("orders").send([a_message("B")])
    consumer = gateway.consumer(a_subscription(queue="orders", lease=timedelta(seconds=LEASE_S)))
    [first] = await consumer.receive(max_count=1, wait_s=0.0)
    assert await consumer.settle([ack(first)]) == []
    sleep(house)

    held = await consumer.receive(max_count=1, wait_s=0.0)

    in_hand = [each for each in held if each.lease_expires_at_s > house.clock.now_s()]
    assert len(in_hand) + len(await take(other)) == 1


async def test_when_a_machine_slept_before_a_renewal_then_nobody_else_gets_what_it_has(
    house: House, layout: Layout
) -> None:
    """R15, T8: nobody had taken it over yet; it hears that the lease is lost, or has a new one."""
    gateway, other = await house.gateway(layout), await house.gateway(layout)
    await ensure(gateway, "orders")
    await gateway.producer("orders").send([a_message("A")])
    consumer = gateway.consumer(a_subscription(queue="orders", lease=timedelta(seconds=LEASE_S)))
    [held] = await consumer.receive(max_count=1, wait_s=0.0)
    sleep(house)

    refused = await consumer.extend([held], lease_s=LEASE_S)

    taken = await take(other)
    assert len(taken) + (not refused) == 1
    assert bool(await consumer.settle([ack(held)])) == bool(taken)
