"""Closing a consumer while its settlements are under way: they come to their end first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateways.rabbitmq import RabbitMQGateway
from gateways.rabbitmq.topology import Topology
from pump.clock import SYSTEM_CLOCK
from pump.testing.builders import a_message, a_subscription, defer
from tests.gateways.work import make

pytestmark = pytest.mark.broker


async def test_when_a_consumer_is_closed_in_the_middle_of_a_deferral_then_there_is_one_message(
    gateway: RabbitMQGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws 1, 6: the deferral was cancelled, the copy is sent, so the original must go."""
    subscription = a_subscription(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message()])
    consumer = gateway.consumer(subscription)
    [received] = await consumer.receive(max_count=1, wait_s=30)
    is_sending = asyncio.Event()
    publish = Topology.publish

    async def publish_slowly(*arguments: Any, **fields: Any) -> Any:
        is_sending.set()
        await SYSTEM_CLOCK.sleep(0.2)
        return await publish(*arguments, **fields)

    monkeypatch.setattr(Topology, "publish", publish_slowly)
    deferring = asyncio.create_task(consumer.settle([defer(received, seconds=2)]))
    await is_sending.wait()
    deferring.cancel()
    await consumer.aclose()

    other = gateway.consumer(subscription)
    [again] = await other.receive(max_count=2, wait_s=30)
    assert (again.message.id, again.attempt) == (received.message.id, 2)
    assert not await other.receive(max_count=1, wait_s=2.5)
