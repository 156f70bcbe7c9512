"""Producers that know nothing of us, and what the service itself does with messages."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage

from gateways.servicebus import ServiceBusGateway, sdk
from pump import App, headers as names
from pump.clock import SYSTEM_CLOCK
from pump.testing.builders import a_message, a_subscription, abandon, ack, defer
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.gateways.work import Job, a_job_subscription, make

from .conftest import OpenGateway, settings_of

pytestmark = pytest.mark.broker


async def send_as_a_stranger(
    peer: ServiceBusPeer, queue: str, *messages: ServiceBusMessage | AmqpAnnotatedMessage
) -> None:
    client: ServiceBusClient = await asyncio.to_thread(sdk.client_of, settings_of(peer), None)
    async with client, sdk.sender_of(client, queue, read_s=0.1) as sender:
        for message in messages:
            await sender.send_messages(message)


async def test_when_a_stranger_sends_then_it_is_handled_and_garbage_is_routed(
    gateway: ServiceBusGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R26, R35: never dropped, never looped."""
    subscription = a_job_subscription(name)
    handled: list[int] = []
    all_handled = asyncio.Event()

    async def handle(job: Job) -> None:
        handled.append(job.number)
        if len(handled) == 3:
            all_handled.set()

    app = App(gateway)
    app.register(Job, handle)
    app.subscribe(subscription)
    await make(gateway, subscription)
    await send_as_a_stranger(
        servicebus,
        name,
        ServiceBusMessage(b'{"number": 1}', content_type="application/json"),
        ServiceBusMessage(b'{"number": 2}', subject="Job", message_id="theirs"),
        AmqpAnnotatedMessage(value_body={"number": 3}),
        ServiceBusMessage(
            b"\xff\x00 not JSON", message_id="garbage", application_properties={"a": 1}
        ),
    )

    invalid = gateway.consumer(a_subscription(f"{name}-invalid"))
    async with app:
        dispatcher = app.dispatcher()
        running = asyncio.create_task(dispatcher.run())
        [garbage] = await invalid.receive(max_count=2, wait_s=30)
        await asyncio.wait_for(all_handled.wait(), 30)
        dispatcher.drain()
        await running

    assert sorted(handled) == [1, 2, 3]
    assert (garbage.message.id, garbage.message.body) == ("garbage", b"\xff\x00 not JSON")
    assert garbage.message.headers["a"] == "1"


async def test_when_a_strangers_message_is_deferred_then_it_comes_again_as_it_was(
    gateway: ServiceBusGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R17: through a copy, whose attempts go on."""
    subscription = a_subscription(name)
    await make(gateway, subscription)
    await send_as_a_stranger(
        servicebus,
        name,
        ServiceBusMessage(b"x", subject="T", application_properties={"n": 1, "t": "text"}),
    )
    consumer = gateway.consumer(subscription)
    [first] = await consumer.receive(max_count=1, wait_s=30)

    await consumer.settle([defer(first, seconds=0.2)])

    [again] = await consumer.receive(max_count=1, wait_s=30)
    assert again.message == first.message
    assert (again.attempt, again.broker_id) == (2, first.broker_id)
    assert not await consumer.settle([ack(again)])


async def test_when_the_service_buries_a_message_then_it_is_read_by_its_sub_queue_with_its_reason(
    gateway: ServiceBusGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R21: `queue/$DeadLetterQueue` is a queue like others, but for sending."""
    await make(gateway, a_subscription(name))
    sent = a_message("A")
    await gateway.producer(name).send([sent])
    client: ServiceBusClient = await asyncio.to_thread(sdk.client_of, settings_of(servicebus), None)
    async with client, sdk.receiver_of(client, name, read_s=0.1) as receiver:
        [message] = await receiver.receive_messages(1, 5)
        await receiver.dead_letter_message(message, "TooOld", "it is of last year")

    dead = f"{name}/$DeadLetterQueue"
    stats = await gateway.admin().stats(dead)
    consumer = gateway.consumer(a_subscription(dead))
    [dead_lettered] = await consumer.receive(max_count=1, wait_s=30)

    assert stats.visible == 1
    assert (dead_lettered.message.id, dead_lettered.message.body) == (sent.id, b"A")
    assert dead_lettered.message.headers[names.ORIGINAL_TOPIC] == name
    assert "TooOld: it is of last year" in dead_lettered.message.headers[names.REJECTION_DETAIL]
    assert not await consumer.settle([ack(dead_lettered)])


async def test_when_delayed_retries_reach_the_limit_then_the_message_is_where_dead_letters_go(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R20, T5: the service counts each copy anew, we do not."""
    subscription = a_subscription(
        name, dead_letter_queue=f"{name}-dead", max_receive_count=3, lease=timedelta(seconds=10)
    )
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    sent = a_message()
    await gateway.producer(name).send([sent])

    for attempt in (1, 2, 3):
        [held] = await consumer.receive(max_count=1, wait_s=30)
        assert held.attempt == attempt
        assert not await consumer.settle([defer(held, seconds=0.1)])

    [dead] = await gateway.consumer(a_subscription(f"{name}-dead")).receive(max_count=1, wait_s=30)
    assert (dead.message.id, dead.attempt) == (sent.id, 1)
    assert dead.message.headers[names.ORIGINAL_TOPIC] == name
    assert await consumer.receive(max_count=1, wait_s=0.0) == []


async def test_when_a_message_is_handed_back_untried_at_its_last_delivery_then_it_stays(
    gateway: ServiceBusGateway, name: str
) -> None:
    """T5: a worker that stops must not send to the dead letters what nobody has tried."""
    subscription = a_subscription(
        name, dead_letter_queue=f"{name}-dead", max_receive_count=1, lease=timedelta(seconds=10)
    )
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    sent = a_message()
    await gateway.producer(name).send([sent])

    for _ in range(3):
        [held] = await consumer.receive(max_count=1, wait_s=30)
        assert (held.message, held.attempt) == (sent, 1)
        assert not await consumer.settle([abandon(held)])

    [held] = await consumer.receive(max_count=1, wait_s=30)
    assert not await consumer.settle([ack(held)])
    assert (await gateway.admin().stats(f"{name}-dead")).visible == 0


async def test_when_a_dead_letter_of_the_service_is_deferred_then_it_comes_again_in_time(
    gateway: ServiceBusGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R17: nobody can send a copy there, so it is held back meanwhile."""
    await make(gateway, a_subscription(name))
    await gateway.producer(name).send([a_message("A")])
    client: ServiceBusClient = await asyncio.to_thread(sdk.client_of, settings_of(servicebus), None)
    async with client, sdk.receiver_of(client, name, read_s=0.1) as receiver:
        [message] = await receiver.receive_messages(1, 5)
        await receiver.dead_letter_message(message, "TooOld", "it is of last year")
    consumer = gateway.consumer(a_subscription(f"{name}/$DeadLetterQueue"))
    [held] = await consumer.receive(max_count=1, wait_s=30)
    deferred_at_s = SYSTEM_CLOCK.now_s()

    assert not await consumer.settle([defer(held, seconds=1.5)])

    [refusal] = await consumer.settle([ack(held)])
    assert refusal.is_final
    [again] = await consumer.receive(max_count=1, wait_s=30)
    assert SYSTEM_CLOCK.now_s() - deferred_at_s >= 1.4
    assert (again.message.body, again.attempt) == (b"A", 2)
    assert not await consumer.settle([ack(again)])


async def test_when_the_policy_may_not_send_then_a_deferred_message_is_held_back_and_released(
    open_gateway: OpenGateway, gateway: ServiceBusGateway, name: str
) -> None:
    """Law 5: a copy that is refused for good keeps nobody from stopping."""
    subscription = a_subscription(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A")])
    listener = await open_gateway(key_name="listener")
    consumer = listener.consumer(subscription)
    [held] = await consumer.receive(max_count=1, wait_s=30)

    assert not await consumer.settle([defer(held, seconds=60)])
    assert await gateway.consumer(subscription).receive(max_count=1, wait_s=0.0) == []
    await listener.aclose()

    [again] = await gateway.consumer(subscription).receive(max_count=1, wait_s=30)
    assert again.attempt == 2
    assert not await gateway.consumer(subscription).settle([ack(again)])
