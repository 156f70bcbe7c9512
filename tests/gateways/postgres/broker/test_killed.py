"""A server that dies, and connections that are cut or fall silent: nothing is lost (R51)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import ConnectionFailed, PumpError
from pump.testing.builders import a_message, ack
from tests.brokers.postgres_server import PostgresServer
from tests.brokers.tcp_proxy import TcpProxy

from .bench import PATIENCE_S, Bench, ids, surely

pytestmark = [pytest.mark.broker, pytest.mark.asyncio]


async def test_when_the_server_is_killed_in_mid_work_then_nothing_is_lost_or_handled_again(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    """Laws 1 and 2: what a send confirmed is received, and what an ack confirmed is not again."""
    server = own_postgres(is_safe=True)
    bench = Bench(server)
    sent: set[str] = set()
    acked: list[str] = []
    is_over = asyncio.Event()

    async with bench.gateway() as gateway:
        subscription = await bench.make(gateway)
        consumer = gateway.consumer(subscription)

        async def produce() -> None:
            number = 0
            while not is_over.is_set():
                batch = [a_message(id=f"{number}-{each}") for each in range(20)]
                number += 1
                try:
                    await gateway.producer(bench.queue).send(batch)
                except PumpError:
                    await SYSTEM_CLOCK.sleep(0.02)
                else:
                    sent.update(each.id for each in batch)

        async def consume() -> None:
            while not is_over.is_set():
                received = await surely(lambda: consumer.receive(max_count=50, wait_s=0.1))
                held = [ack(each) for each in received]
                refused = await surely(partial(consumer.settle, held))
                lost = {refusal.delivery for refusal in refused}
                acked.extend(each.message.id for each in received if each not in lost)

        async with asyncio.TaskGroup() as group:
            for work in (produce, consume, consume):
                group.create_task(work())
            for _ in range(3):
                before = len(acked)
                while len(acked) < before + 200:
                    await SYSTEM_CLOCK.sleep(0.01)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            is_over.set()
        # What was leased when the server died comes when its lease ends: here, at once.
        bench.execute("UPDATE @.lease SET due_at = clock_timestamp()")
        while received := await surely(lambda: consumer.receive(max_count=1_000, wait_s=0.0)):
            assert not await consumer.settle([ack(each) for each in received])
            acked.extend(ids(received))

    assert sent <= set(acked)
    assert len(acked) == len(set(acked))


async def test_when_the_answer_to_an_ack_is_lost_then_acking_again_is_no_refusal(
    bench: Bench,
) -> None:
    async with (
        TcpProxy(bench.server.port) as proxy,
        bench.gateway(port=proxy.port, max_connections=1) as gateway,
    ):
        subscription = await bench.make(gateway)
        await bench.send(gateway, "first", "a", "b")
        consumer = gateway.consumer(subscription)
        # A statement is prepared when it is used first, which takes an answer.
        [first] = await consumer.receive(max_count=1, wait_s=PATIENCE_S)
        await consumer.settle([ack(first)])
        held = await consumer.receive(max_count=2, wait_s=PATIENCE_S)
        proxy.loses_answers = True

        settling = asyncio.create_task(consumer.settle([ack(each) for each in held]))
        while bench.execute("SELECT count(*) FROM @.message") != [(0,)]:
            await SYSTEM_CLOCK.sleep(0.01)
        proxy.loses_answers = False
        proxy.sever()
        with pytest.raises(ConnectionFailed):
            await settling

        assert not await surely(lambda: consumer.settle([ack(each) for each in held]))
        refused = await consumer.settle([ack(each) for each in held])
        assert [refusal.is_final for refusal in refused] == [True, True]


async def test_when_the_server_falls_silent_then_calls_end_in_time_and_so_does_closing(
    bench: Bench,
) -> None:
    async with TcpProxy(bench.server.port) as proxy:
        async with bench.gateway(port=proxy.port, request_timeout_s=1.0) as gateway:
            subscription = await bench.make(gateway)
            proxy.freeze()

            with pytest.raises(ConnectionFailed):
                await gateway.producer(bench.queue).send([a_message()])
            # By another connection, since that one is not trusted any more.
            await bench.send(gateway, "next")
            received = await gateway.consumer(subscription).receive(max_count=2, wait_s=0.0)
            assert ids(received)[-1] == "next"
            proxy.freeze()
            hanging = asyncio.create_task(bench.send(gateway, "last"))
            await yield_to_loop()

        with pytest.raises(PumpError):
            await hanging


async def test_when_the_listening_connection_is_lost_then_it_listens_again(bench: Bench) -> None:
    async with bench.gateway(poll_s=PATIENCE_S) as gateway, bench.gateway() as other:
        subscription = await bench.make(gateway)
        consumer = gateway.consumer(subscription)
        waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=PATIENCE_S))
        while not gateway._queues[bench.queue].waiters.queue_id:
            await SYSTEM_CLOCK.sleep(0.01)

        bench.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' "
            "AND query LIKE '%%' || %s || '%%'",
            [bench.schema],
        )
        with pytest.raises(ConnectionFailed):
            await waiting
        waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=PATIENCE_S))
        while not gateway._listener.is_listening:
            await SYSTEM_CLOCK.sleep(0.01)
        await bench.send(other, "a")

        assert ids(await waiting) == ["a"]


async def test_when_a_receive_is_cancelled_and_the_gateway_closed_then_nothing_stays_hidden(
    bench: Bench,
) -> None:
    """What it was about to return is handed back, uncounted, before the connections are closed."""
    async with bench.gateway() as other:
        subscription = await bench.make(other)
        await bench.send(other, "a")
        for turns in range(8):
            async with bench.gateway() as gateway:
                consumer = gateway.consumer(subscription)
                receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=PATIENCE_S))
                for _ in range(turns):
                    await yield_to_loop()
                receiving.cancel()
                await asyncio.wait([receiving])

        [received] = await other.consumer(subscription).receive(max_count=1, wait_s=0.0)
        assert (ids([received]), received.attempt) == (["a"], 1)
