"""Consumers that wait ask nothing of the server, and one message wakes one of them."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from gateways.postgres import PostgresGateway
from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.message import Delivery
from pump.testing.builders import a_message, ack

from .bench import PATIENCE_S, Bench, ids

pytestmark = [pytest.mark.broker, pytest.mark.asyncio]

CONSUMERS = 100


async def come_to_rest(gateway: PostgresGateway) -> None:
    """Return when nothing is asked of the server any more."""
    while gateway._database.under_way:
        await SYSTEM_CLOCK.sleep(0.01)


async def test_when_a_hundred_wait_then_a_message_costs_a_few_statements(bench: Bench) -> None:
    async with bench.gateway(poll_s=PATIENCE_S) as gateway, bench.gateway() as other:
        subscription = await bench.make(gateway)
        came: asyncio.Queue[Delivery] = asyncio.Queue()

        is_over = asyncio.Event()

        async def consume() -> None:
            consumer = gateway.consumer(subscription)
            while not is_over.is_set():
                for each in await consumer.receive(max_count=1, wait_s=PATIENCE_S):
                    came.put_nowait(each)

        consumers = [asyncio.create_task(consume()) for _ in range(CONSUMERS)]
        counts = gateway._database.counts
        while counts["receive"] < CONSUMERS:
            await SYSTEM_CLOCK.sleep(0.01)
        await come_to_rest(gateway)
        before = counts["receive"]

        for number in range(10):
            await bench.send(other, f"single {number}")
            await came.get()
        await other.producer(bench.queue).send([a_message(id=f"{each}") for each in range(20)])
        for _ in range(20):
            await came.get()
        await come_to_rest(gateway)
        asked = counts["receive"] - before

        is_over.set()
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)

    # Three for a message: one finds it, has another look for more, and waits anew, which is a look.
    # What is told during a look is a reason for one more. All of them would look 3,000 times.
    assert asked <= 10 * 30


async def test_when_a_transaction_was_open_as_others_went_by_then_its_message_comes_all_the_same(
    bench: Bench,
) -> None:
    """What is committed late is below the mark of those who have gone by, and is told to them."""
    async with bench.gateway(poll_s=PATIENCE_S) as gateway:
        subscription = await bench.make(gateway)
        consumer = gateway.consumer(subscription)
        with psycopg.connect(bench.server.url()) as late:
            send = f"SELECT \"{bench.schema}\".send('orders', 0, ARRAY[NULL], ARRAY[''::bytea])"
            late.execute(send.encode())
            await bench.send(gateway, "a", "b")
            early = await consumer.receive(max_count=10, wait_s=PATIENCE_S)
            assert not await consumer.settle([ack(each) for each in early])
            waiting = asyncio.create_task(consumer.receive(max_count=10, wait_s=PATIENCE_S))
            await yield_to_loop()
            late.commit()

        assert ids(early) == ["a", "b"]
        [received] = await waiting
        assert received.broker_id is not None
        assert early[0].broker_id is not None
        assert int(received.broker_id) < int(early[0].broker_id)
