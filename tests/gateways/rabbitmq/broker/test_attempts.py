"""Attempts and leases as a quorum queue counts and ends them: none is spent that nobody saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import aiormq
import pytest

from gateways.rabbitmq import RabbitMQGateway
from pump import App, hybrid
from pump.backoff import Backoff
from pump.clock import SYSTEM_CLOCK
from pump.message import Delivery
from pump.testing.builders import a_message, a_subscription, abandon, ack, defer
from tests.gateways.work import Job, a_job, a_job_subscription, make

from .conftest import OpenGateway

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


async def test_when_messages_were_handed_back_unread_then_they_keep_all_their_retries(
    open_gateway: OpenGateway, name: str
) -> None:
    """T5: `max_retries=2` is three runs, however often a pump that was stopped had them."""
    failure = hybrid(2, backoff=Backoff(initial=timedelta(milliseconds=100)))
    subscription = a_job_subscription(name, failure=failure)
    runs: Counter[int] = Counter()

    async def fail(job: Job) -> None:
        runs[job.number] += 1
        raise ValueError(job.number)

    await make(await open_gateway(), subscription)
    await (await open_gateway()).producer(name).send([a_job(number) for number in range(3)])
    for _ in range(3):
        gateway = await open_gateway()
        consumer = gateway.consumer(subscription)
        received: list[Delivery] = []
        while len(received) < 3:
            received += await consumer.receive(max_count=3, wait_s=WAIT_S)
        assert not await consumer.settle([abandon(each) for each in received])
        await gateway.aclose()
    app = App(await open_gateway())
    app.register(Job, fail)
    app.subscribe(subscription)
    async with app, app.pumping():
        while runs.total() < 9:
            await SYSTEM_CLOCK.sleep(0.01)

    assert runs == {0: 3, 1: 3, 2: 3}


async def test_when_leases_end_and_the_dead_letter_queue_is_missing_then_the_others_are_kept(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str
) -> None:
    """Law 1: told twice of one delivery, the broker would close the channel, and end every lease
    on it.
    """
    subscription = a_subscription(
        name,
        lease=timedelta(seconds=30),
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
