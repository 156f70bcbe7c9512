"""Behind PgBouncer in transaction mode: every statement may run on another connection."""

from __future__ import annotations

import asyncio

import pytest

from gateways.postgres import Listen
from pump.clock import yield_to_loop
from pump.testing.builders import a_message, ack, defer

from .bench import PATIENCE_S, Bench, ids

pytestmark = [pytest.mark.broker, pytest.mark.asyncio]


async def test_when_there_is_a_pooler_then_it_is_noticed_and_nothing_is_listened_to(
    bench: Bench, pgbouncer: int
) -> None:
    async with bench.gateway(port=pgbouncer) as gateway, bench.gateway() as direct:
        assert not gateway._listener.is_listening
        assert direct._listener.is_listening


async def test_when_many_work_through_a_pooler_then_nothing_is_lost_or_doubled(
    bench: Bench, pgbouncer: int
) -> None:
    """With six connections to it and two behind it, in groups and out of them."""
    sent = [
        a_message(id=str(each), group=f"g{each % 7}" if each % 2 else None) for each in range(400)
    ]
    done: list[str] = []

    async with bench.gateway(port=pgbouncer) as one, bench.gateway(port=pgbouncer) as two:
        subscription = await bench.make(one)

        async def produce() -> None:
            for start in range(0, len(sent), 20):
                await one.producer(bench.queue).send(sent[start : start + 20])

        async def consume(number: int) -> None:
            consumer = (one, two)[number % 2].consumer(subscription)
            while len(done) < len(sent):
                received = await consumer.receive(max_count=5, wait_s=0.2)
                again, for_good = received[:number], received[number:]
                assert not await consumer.extend(received, lease_s=PATIENCE_S)
                assert not await consumer.settle([defer(each) for each in again])
                assert not await consumer.settle([ack(each) for each in for_good])
                done.extend(ids(for_good))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            for number in (0, 1, 0, 1, 2):
                group.create_task(consume(number))

    assert sorted(done) == sorted(each.id for each in sent)


async def test_when_nothing_is_told_then_a_message_is_found_by_looking(bench: Bench) -> None:
    async with (
        bench.gateway(listen=Listen.OFF, poll_s=0.05) as gateway,
        bench.gateway(listen=Listen.OFF) as other,
    ):
        subscription = await bench.make(gateway)
        consumer = gateway.consumer(subscription)
        waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=PATIENCE_S))
        await yield_to_loop()

        await bench.send(other, "a")

        assert ids(await waiting) == ["a"]
