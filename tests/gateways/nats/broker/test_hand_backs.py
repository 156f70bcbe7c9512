"""What is handed back untried costs no retry, and leaves nothing behind (T5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateways.nats import NatsGateway
from gateways.nats.connection import ApiError
from gateways.nats.receipts import STREAM
from pump.ports import ConsumerPort
from pump.testing.builders import a_message, abandon, ack, defer
from tests.brokers.nats_server import NatsServer

from .bench import Bench

pytestmark = pytest.mark.broker


async def attempts(consumer: ConsumerPort, settlement: Callable[..., object], times: int) -> None:
    """Receive one message and settle it, again and again."""
    for _ in range(times):
        [received] = await consumer.receive(max_count=1, wait_s=30)
        await consumer.settle([settlement(received)])  # type: ignore[list-item]


async def number_count(gateway: NatsGateway) -> int:
    info = await gateway._api.ask(f"STREAM.INFO.{STREAM}")
    return int(info["state"]["messages"])


async def test_when_a_message_that_was_handed_back_is_acked_then_its_number_is_removed(
    own_nats: Callable[..., NatsServer],
) -> None:
    """T5: tried once in four deliveries, by two processes."""
    bench = Bench(own_nats().url)
    async with bench.gateway() as gateway, bench.gateway() as other:
        await bench.make(gateway)
        await gateway.producer(bench.queue).send([a_message()])
        await attempts(gateway.consumer(bench.subscription()), abandon, 2)
        await attempts(gateway.consumer(bench.subscription()), defer, 1)
        consumer = other.consumer(bench.subscription())

        [received] = await consumer.receive(max_count=1, wait_s=30)
        kept = await number_count(gateway)
        assert not await consumer.settle([ack(received)])
        await other.aclose()

        assert (received.attempt, kept) == (2, 1)
        assert await number_count(gateway) == 0


async def test_when_a_queue_is_made_anew_then_nothing_is_taken_off_its_messages(
    nats: NatsServer,
) -> None:
    """T5: the number is of one message, not of its place."""
    bench = Bench(nats.url)
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        await gateway.producer(bench.queue).send([a_message()])
        await attempts(gateway.consumer(bench.subscription()), abandon, 3)
        await gateway._api.ask(f"STREAM.DELETE.{bench.queue}")
        await bench.make(gateway)
        await gateway.producer(bench.queue).send([a_message()])
        consumer = gateway.consumer(bench.subscription())

        await attempts(consumer, defer, 2)
        [third] = await consumer.receive(max_count=1, wait_s=30)

        assert third.attempt == 3


async def test_when_the_number_may_not_be_written_then_it_is_handed_back_all_the_same(
    own_nats: Callable[..., NatsServer],
) -> None:
    """T5: counted then, as the page says; nothing waits or fails for it."""
    server = own_nats(
        "authorization { users: [{ user: ada, password: p, "
        'permissions: { publish: { deny: "$KV.>" } } }] }'
    )
    bench = Bench(server.url.replace("//", "//ada:p@"))
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        await gateway.producer(bench.queue).send([a_message()])
        consumer = gateway.consumer(bench.subscription())

        await attempts(consumer, abandon, 1)
        [again] = await consumer.receive(max_count=1, wait_s=30)

        assert again.attempt == 2
        with pytest.raises(ApiError):
            await number_count(gateway)
