"""Queues that are made, deleted and made again under those who use them (R2, R51)."""

from __future__ import annotations

import asyncio

import pytest

from pump.errors import QueueMismatch, QueueNotFound
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.builders import a_message, ack
from tests.brokers.nats_server import NatsServer

from .bench import Bench, ids

pytestmark = pytest.mark.broker


async def test_when_the_queue_is_deleted_then_receiving_and_sending_say_so(bench: Bench) -> None:
    """R2: also to those who waited for a message."""
    async with bench.gateway() as gateway:
        consumer = gateway.consumer(bench.subscription())
        assert not await consumer.receive(max_count=1, wait_s=0.0)

        await gateway._api.ask(f"STREAM.DELETE.{bench.queue}")

        with pytest.raises(QueueNotFound):
            await consumer.receive(max_count=1, wait_s=1.0)
        with pytest.raises(QueueNotFound):
            await gateway.producer(bench.queue).send([a_message()])


async def test_when_the_queue_is_made_again_then_its_consumers_go_on(bench: Bench) -> None:
    """R51: one that waits all the while is told, and may ask again."""
    async with bench.gateway() as gateway:
        consumer = gateway.consumer(bench.subscription())
        assert not await consumer.receive(max_count=1, wait_s=0.0)
        await gateway._api.ask(f"STREAM.DELETE.{bench.queue}")
        async with bench.gateway() as other:
            await bench.make(other)
        await bench.send(None, "a", "b")

        received = await consumer.receive(max_count=10, wait_s=30)

        assert ids(received) == ["a", "b"]
        assert not await consumer.settle([ack(each) for each in received])


async def test_when_the_shared_consumer_is_deleted_then_it_is_made_again(bench: Bench) -> None:
    """R51: and its receipts are void, because the server gives everything out anew."""
    await bench.send(None, "a", "b")
    async with bench.gateway() as gateway:
        consumer = gateway.consumer(bench.subscription())
        [held] = await consumer.receive(max_count=1, wait_s=30)

        await gateway._api.ask(f"CONSUMER.DELETE.{bench.queue}.pump")
        [refusal] = await consumer.settle([ack(held)])

        assert refusal.is_final
        assert ids(await consumer.receive(max_count=10, wait_s=30)) == ["a", "b"]


async def test_when_many_make_one_queue_at_once_then_all_of_them_have_it(nats: NatsServer) -> None:
    bench = Bench(nats.url)

    async def make() -> None:
        async with bench.gateway() as gateway:
            await bench.make(gateway)

    await asyncio.gather(*(make() for _ in range(10)))

    await bench.send(None, "a")
    assert ids(await bench.take_all()) == ["a"]


async def test_when_another_stream_has_the_subjects_then_making_the_queue_says_so(
    nats: NatsServer,
) -> None:
    bench = Bench(nats.url)
    async with bench.gateway() as gateway:
        taken = {"name": f"{bench.queue}-other", "subjects": [f"{bench.queue}.>"]}
        await gateway._api.ask(f"STREAM.CREATE.{taken['name']}", taken)

        with pytest.raises(QueueMismatch, match="another stream"):
            await bench.make(gateway)


async def test_when_a_stream_is_no_work_queue_then_it_does_not_fit(nats: NatsServer) -> None:
    """R22: what is acked would stay in it."""
    bench = Bench(nats.url)
    async with bench.gateway() as gateway:
        await gateway._api.ask(f"STREAM.CREATE.{bench.queue}", {"name": bench.queue})

        with pytest.raises(QueueMismatch, match="retention"):
            await gateway.admin().ensure(QueueSpec(name=bench.queue), MakeChannels.VALIDATE)


async def test_when_a_stream_was_made_by_others_then_it_can_be_a_queue(nats: NatsServer) -> None:
    bench = Bench(nats.url)
    config = {
        "name": bench.queue,
        "subjects": [bench.queue, f"{bench.queue}.g.*", f"{bench.queue}.s.*"],
        "retention": "workqueue",
    }
    async with bench.gateway() as gateway:
        await gateway._api.ask(f"STREAM.CREATE.{bench.queue}", config)
    await bench.send("group", "a")

    assert ids(await bench.take_all()) == ["a"]
