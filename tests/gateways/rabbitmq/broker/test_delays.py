"""Delay queues that come of age: what waits in them does not go with them."""

from __future__ import annotations

import pytest

from gateways.rabbitmq import RabbitMQGateway, topology
from pump.clock import SYSTEM_CLOCK
from pump.testing.builders import a_message, a_subscription, ack
from tests.gateways.work import make

pytestmark = pytest.mark.broker


async def test_when_a_delay_is_used_for_longer_than_its_queue_lives_unused_then_nothing_is_lost(
    gateway: RabbitMQGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 2: RabbitMQ removes a queue that is only declared and published to, messages and all."""
    monkeypatch.setattr(topology, "DAY_MS", 5_000)
    monkeypatch.setattr(topology, "DECLARED_FOR_S", 0.5)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    messages = [a_message() for _ in range(24)]

    for message in messages:
        await gateway.producer(name).send([message], delay_s=1.0)
        await SYSTEM_CLOCK.sleep(0.4)

    consumer = gateway.consumer(subscription)
    attempts: dict[str, int] = {}
    while received := await consumer.receive(max_count=30, wait_s=5.0):
        attempts |= {each.message.id: each.attempt for each in received}
        assert not await consumer.settle([ack(each) for each in received])
    assert attempts == {message.id: 1 for message in messages}
