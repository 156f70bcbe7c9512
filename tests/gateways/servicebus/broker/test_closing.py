"""What a gateway leaves behind when it is closed, or its callers are cancelled: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import ConnectionFailed
from pump.testing.builders import a_message, a_subscription, ack
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import make

from .conftest import OpenGateway

pytestmark = pytest.mark.broker


async def test_when_a_gateway_is_closed_after_a_cancelled_receive_then_its_messages_are_free(
    open_gateway: OpenGateway, name: str
) -> None:
    """Law 5: what came for nobody goes back at once, not when its lock runs out."""
    gateway, other = await open_gateway(), await open_gateway()
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await consumer.receive(max_count=1, wait_s=0.0)
    await other.producer(name).send([a_message()])
    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=30))
    await yield_to_loop()

    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await gateway.aclose()

    [received] = await other.consumer(subscription).receive(max_count=1, wait_s=30)
    assert not await other.consumer(subscription).settle([ack(received)])


async def test_when_a_gateway_is_closed_then_who_waits_is_told_so(
    open_gateway: OpenGateway, name: str
) -> None:
    gateway = await open_gateway()
    subscription = a_subscription(name)
    await make(gateway, subscription)
    waiting = asyncio.create_task(gateway.consumer(subscription).receive(max_count=1, wait_s=300))
    await yield_to_loop()

    await gateway.aclose()

    with pytest.raises(ConnectionFailed, match="closed"):
        await asyncio.wait_for(waiting, 30)


async def test_when_nobody_receives_any_more_then_another_process_has_what_comes(
    open_gateway: OpenGateway, name: str
) -> None:
    """Credit that was left behind would have it locked where nobody looks."""
    gateway, other = await open_gateway(), await open_gateway()
    subscription = a_subscription(name, lease=timedelta(minutes=5))
    await make(gateway, subscription)
    await gateway.consumer(subscription).receive(max_count=10, wait_s=0.0)
    while gateway._connections.chores._tasks:
        await SYSTEM_CLOCK.sleep(0.05)

    await other.producer(name).send([a_message()])

    [received] = await other.consumer(subscription).receive(max_count=1, wait_s=30)
    assert received.attempt == 1


async def test_when_a_settlement_is_on_its_way_then_the_lease_can_be_extended(
    open_gateway: OpenGateway, name: str
) -> None:
    """Law 3: the keeper must not take for lost what is just being settled."""
    gateway = await open_gateway()
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message()])
    [held] = await consumer.receive(max_count=1, wait_s=30)
    settling = asyncio.create_task(consumer.settle([ack(held)]))
    await yield_to_loop()

    refusals = await consumer.extend([held], lease_s=60)

    assert not refusals
    assert not await settling
    assert await consumer.extend([held], lease_s=60)


async def test_when_a_cancelled_receive_leaves_a_last_delivery_then_it_is_no_dead_letter(
    open_gateway: OpenGateway, name: str
) -> None:
    """T5: nobody has tried it."""
    gateway = await open_gateway()
    subscription = a_subscription(name, dead_letter_queue=f"{name}-dead", max_receive_count=1)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await consumer.receive(max_count=1, wait_s=0.0)
    await gateway.producer(name).send([a_message()])
    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=30))
    await yield_to_loop()

    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await gateway.aclose()

    other = await open_gateway()
    [received] = await other.consumer(subscription).receive(max_count=1, wait_s=30)
    assert received.attempt == 1
    assert not await other.consumer(subscription).settle([ack(received)])


async def test_when_what_came_for_nobody_cannot_be_handed_back_then_its_lock_is_left_to_run_out(
    open_gateway: OpenGateway, own_servicebus: Callable[[], ServiceBusPeer], name: str
) -> None:
    """R8: an hour's lease is nobody's."""
    peer = own_servicebus()
    gateway, other = await open_gateway(peer), await open_gateway(peer)
    await make(gateway, a_subscription(name, lease=timedelta(seconds=5)))
    subscription = a_subscription(name, lease=timedelta(hours=1))
    consumer = gateway.consumer(subscription)
    await consumer.receive(max_count=1, wait_s=0.0)
    await other.producer(name).send([a_message()])
    peer.throttle("update-disposition", 5)
    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=30))
    await yield_to_loop()

    receiving.cancel()

    assert len(await other.consumer(subscription).receive(max_count=1, wait_s=30)) == 1


async def test_when_the_service_does_not_answer_any_more_then_closing_ends_all_the_same(
    open_gateway: OpenGateway,
    servicebus: ServiceBusPeer,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Law 5: each request would be waited for, one after the other, for half a minute."""
    monkeypatch.setattr("gateways.servicebus.gateway.HANDING_BACK_S", 1.0)
    monkeypatch.setattr("gateways.servicebus.connection.CLOSING_S", 1.0)
    monkeypatch.setattr("gateways.servicebus.connection.CLOSING_S", 1.0)
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        subscription = a_subscription(name)
        await make(gateway, subscription)
        await gateway.producer(name).send([a_message() for _ in range(3)])
        consumer = gateway.consumer(subscription)
        received = await consumer.receive(max_count=3, wait_s=30)
        await consumer.extend(received, lease_s=30.0)

        proxy.freeze()
        await asyncio.wait_for(gateway.aclose(), 30)

        assert received
