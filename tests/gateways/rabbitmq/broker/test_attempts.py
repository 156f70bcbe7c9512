"""Attempts and leases as a quorum queue counts and ends them: none is spent that nobody saw."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import aiormq
import pytest

from gateways.rabbitmq import RabbitMQGateway
from pump.testing.builders import a_message, a_subscription, ack, defer
from tests.gateways.work import make

pytestmark = pytest.mark.broker

WAIT_S = 10.0


async def test_when_messages_keep_coming_while_receives_end_then_none_is_counted_twice(
    gateway: RabbitMQGateway, name: str
) -> None:
    """T5: with one delivery only, a hand-over that nobody sees would be the message's last."""
    subscription = a_subscription(name, max_receive_count=1, dead_letter_queue=f"{name}-dead")
    await make(gateway, subscription)
    consumer, producer = gateway.consumer(subscription), gateway.producer(name)

    async def send() -> None:
        for number in range(200):
            await producer.send([a_message(str(number))])

    sending = asyncio.create_task(send())
    attempts: list[int] = []
    while len(attempts) < 200:
        # Room for more than there is: it ends while others are on their way.
        received = await consumer.receive(max_count=10, wait_s=WAIT_S)
        assert received, f"{200 - len(attempts)} are not to be had"
        attempts += [each.attempt for each in received]
        assert not await consumer.settle([ack(each) for each in received])

    await sending
    assert set(attempts) == {1}


async def test_when_leases_end_and_the_dead_letter_queue_is_missing_then_the_others_are_kept(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str
) -> None:
    """Law 1: told twice of one delivery, the broker would close the channel, and end every lease
    on it.
    """
    subscription = a_subscription(
        name,
        lease=timedelta(seconds=3),
        max_receive_count=2,
        dead_letter_queue=f"{name}-dead",
    )
    await make(gateway, subscription)
    connection = await aiormq.connect(rabbitmq_url)
    await (await connection.channel()).queue_delete(f"{name}-dead")
    await connection.close()
    consumer, producer = gateway.consumer(subscription), gateway.producer(name)
    await producer.send([a_message("last")])
    [first] = await consumer.receive(max_count=1, wait_s=WAIT_S)
    assert not await consumer.settle([defer(first)])
    [last] = await consumer.receive(max_count=1, wait_s=WAIT_S)
    await producer.send([a_message("not the last"), a_message("kept")])
    [other] = await consumer.receive(max_count=1, wait_s=WAIT_S)
    [kept] = await consumer.receive(max_count=1, wait_s=WAIT_S)
    assert not await consumer.extend([last, other], lease_s=0.5)
    assert not await consumer.extend([kept], lease_s=60)

    [again] = await consumer.receive(max_count=1, wait_s=WAIT_S)
    # What is under way has ended when this returns.
    await gateway._settling(name).aclose()

    assert (last.attempt, again.message.id) == (2, other.message.id)
    assert not await consumer.settle([ack(kept), ack(again)])
