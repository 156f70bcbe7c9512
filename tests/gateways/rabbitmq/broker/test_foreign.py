"""Strangers on the same broker: their messages are understood, and garbage is routed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from gateways.rabbitmq import RabbitMQGateway
from pump import App
from pump.testing.builders import a_message, a_subscription, ack
from tests.gateways.work import Job, a_job_subscription, make, receive_surely

from ..odd_headers import ODD, publish

pytestmark = pytest.mark.broker


@pytest.fixture
async def stranger(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """A channel of somebody who knows nothing of us."""
    async with await aio_pika.connect(rabbitmq_url) as connection:
        yield await connection.channel()


async def test_when_a_stranger_sends_then_the_pump_handles_it_and_garbage_is_routed(
    gateway: RabbitMQGateway, stranger: AbstractChannel, name: str
) -> None:
    """R35, law 4: with neither id nor type of ours, on the default exchange."""
    subscription = a_job_subscription(name)
    await make(gateway, subscription)
    for body, kind in ((b'{"number": 1}', "Job"), (b"\xff\x00", "Job"), (b'{"number": 2}', "What")):
        await stranger.default_exchange.publish(
            aio_pika.Message(body, type=kind, headers={"n": 7}), routing_key=name
        )
    handled: list[int] = []
    app = App(gateway)
    app.register(Job, lambda job: handled.append(job.number))
    app.subscribe(subscription)

    async with app:
        dispatcher = app.dispatcher()
        running = asyncio.create_task(dispatcher.run())
        invalid = gateway.consumer(a_subscription(f"{name}-invalid"))
        routed = [*await invalid.receive(max_count=2, wait_s=20)]
        while len(routed) < 2:
            routed += await invalid.receive(max_count=2 - len(routed), wait_s=20)
        dispatcher.drain()
        await running

        assert handled == [1]
        assert sorted(each.message.body for each in routed) == [b'{"number": 2}', b"\xff\x00"]
        assert {each.message.headers["n"] for each in routed} == {"7"}
        assert {each.message.headers["rejectionReason"] for each in routed} == {"Unacceptable"}


async def test_when_a_stranger_receives_ours_then_the_properties_say_what_it_is(
    gateway: RabbitMQGateway, stranger: AbstractChannel, name: str
) -> None:
    """What AMQP has a place for is there, readable by anybody."""
    await make(gateway, a_subscription(name))
    message = a_message("hello", type="Greeting", correlation_id="c-1", headers={"trace": "t"})
    await gateway.producer(name).send([message])

    received = await (await stranger.get_queue(name)).get(timeout=10)

    assert received is not None
    assert (received.body, received.message_id) == (b"hello", message.id)
    assert (received.type, received.correlation_id) == ("Greeting", "c-1")
    assert received.headers["trace"] == "t"
    assert received.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    await received.ack()


async def test_when_a_stranger_sends_then_every_field_of_amqp_is_understood(
    gateway: RabbitMQGateway, stranger: AbstractChannel, name: str
) -> None:
    """T11."""
    await make(gateway, a_subscription(name))
    at = datetime(2026, 11, 17, 12, tzinfo=UTC)
    sent = aio_pika.Message(
        b"x", message_id="m", content_type="text/plain", reply_to="answers", timestamp=at
    )
    await stranger.default_exchange.publish(sent, routing_key=name)

    consumer = gateway.consumer(a_subscription(name))
    [delivery] = await consumer.receive(max_count=1, wait_s=30)

    message = delivery.message
    assert (message.id, message.content_type, message.reply_to) == ("m", "text/plain", "answers")
    assert (message.created_at, delivery.attempt) == (at, 1)
    assert not await consumer.settle([ack(delivery)])


async def test_when_headers_are_such_that_the_sdk_fails_then_every_message_is_still_received(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str
) -> None:
    """Laws 4, 7: each of them ends the connection that meets it first, and would the next."""
    subscription = a_job_subscription(name)
    await make(gateway, subscription)
    for body, written in zip(map(str, range(len(ODD))), ODD.values(), strict=True):
        await publish(rabbitmq_url, name, body.encode(), written)
    await gateway.producer(name).send([a_message("ours")])

    consumer = gateway.consumer(subscription)
    bodies: set[bytes] = set()
    while len(bodies) < len(ODD) + 1:
        [delivery] = await receive_surely(gateway, subscription)
        assert not await consumer.settle([ack(delivery)])
        bodies.add(delivery.message.body)

    assert bodies == {b"ours", *(str(number).encode() for number in range(len(ODD)))}
