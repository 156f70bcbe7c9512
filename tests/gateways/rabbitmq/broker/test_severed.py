"""Connections that are cut: nothing is lost, and work goes on by itself."""

from __future__ import annotations

import asyncio

import pytest

from gateways.rabbitmq import RabbitMQSettings
from pump import App
from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import ConnectionFailed
from pump.testing.builders import a_message, a_subscription, ack
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import (
    PATIENCE_S,
    Job,
    a_job,
    a_job_subscription,
    make,
    receive_surely,
    send_surely,
    work_off,
)

from .conftest import OpenGateway
from .places import until_consumed, via

pytestmark = pytest.mark.broker


async def test_when_connections_are_cut_again_and_again_then_the_pump_handles_everything(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R51: in the middle of sends, of receives and of settles."""
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        cut_count = 0

        def cut_now_and_then(number: int) -> None:
            nonlocal cut_count
            if number % 40 == 20:
                cut_count += 1
                proxy.sever()

        handled = await work_off(
            gateway, a_job_subscription(name), jobs=300, disturb=cut_now_and_then
        )

        assert set(handled) == set(range(300))
        assert cut_count >= 14
        assert proxy.connection_count > 5


async def test_when_the_connection_is_cut_then_only_what_ran_is_handled_again(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """Law 3: leases end with their connection. The handler that runs is told, and what was only
    prefetched is not started.
    """
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        subscription = a_job_subscription(name, concurrency=1, prefetch=19)
        runs: list[int] = []
        cancelled: list[int] = []
        is_running, is_done = asyncio.Event(), asyncio.Event()

        async def handle(job: Job) -> None:
            runs.append(job.number)
            if len(runs) == 1:
                is_running.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(job.number)
                    raise
            if len(set(runs)) == 20:
                is_done.set()

        app = App(gateway)
        app.register(Job, handle)
        app.subscribe(subscription)
        await make(gateway, subscription)
        await gateway.producer(name).send([a_job(number) for number in range(20)])
        async with app, app.pumping() as dispatcher:
            await is_running.wait()
            # Some wait behind it: how many is the broker's business.
            while dispatcher.performers[0].stats.received < 2:
                await SYSTEM_CLOCK.sleep(0.01)
            proxy.sever()
            await asyncio.wait_for(is_done.wait(), PATIENCE_S)

        assert cancelled == runs[:1]
        assert sorted(runs[1:]) == list(range(20))


async def test_when_the_broker_is_away_then_calls_say_so_and_recover_by_themselves(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R51: `ConnectionFailed`, and the same ports work again."""
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        subscription = a_subscription(name)
        await make(gateway, subscription)
        consumer, producer = gateway.consumer(subscription), gateway.producer(name)
        await producer.send([a_message("before")])
        proxy.shut()

        with pytest.raises(ConnectionFailed):
            await producer.send([a_message("lost")])
        with pytest.raises(ConnectionFailed):
            await consumer.receive(max_count=1, wait_s=0.0)
        with pytest.raises(ConnectionFailed):
            await gateway.admin().stats(name)
        proxy.let_in()
        await send_surely(gateway, name, a_message("after"))

        received = [*await consumer.receive(max_count=1, wait_s=5)]
        received += await consumer.receive(max_count=1, wait_s=5)
        assert [each.message.body for each in received] == [b"before", b"after"]


async def test_when_the_connection_is_cut_while_a_message_is_in_hand_then_it_comes_again(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R9, R51: the old receipt is refused for good, the new one counts one attempt more."""
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        subscription = a_subscription(name)
        await make(gateway, subscription)
        consumer = gateway.consumer(subscription)
        await gateway.producer(name).send([a_message()])
        [first] = await consumer.receive(max_count=1, wait_s=5)
        proxy.sever()
        # What follows meets a connection that is known to be gone.
        [again] = await receive_surely(gateway, subscription)

        [refusal] = await consumer.settle([ack(first)])

        assert refusal.is_final
        assert (again.message.id, again.attempt) == (first.message.id, 2)
        assert not await consumer.settle([ack(again)])


async def test_when_the_connection_is_cut_while_a_receive_waits_then_the_receive_says_so(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R51: at once, not at the end of its wait."""
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        subscription = a_subscription(name)
        await make(gateway, subscription)
        consumer = gateway.consumer(subscription)
        waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=60))
        await until_consumed(gateway, name)

        proxy.sever()

        with pytest.raises(ConnectionFailed):
            await asyncio.wait_for(waiting, 15)


async def test_when_the_connection_is_cut_in_the_middle_of_a_settle_then_the_message_is_not_lost(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """Laws 1 and 2: either the broker has the ack, or the message comes again."""
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        subscription = a_subscription(name)
        await make(gateway, subscription)
        messages = [a_message(str(number)) for number in range(20)]
        await gateway.producer(name).send(messages)
        received = await gateway.consumer(subscription).receive(max_count=20, wait_s=5)
        count = len(received)

        settling = asyncio.create_task(
            gateway.consumer(subscription).settle([ack(each) for each in received])
        )
        await yield_to_loop()
        proxy.sever()
        refused = {refusal.delivery.message.id for refusal in await settling}

        expected = {each.id for each in messages}
        settled = {each.message.id for each in received} - refused
        left: set[str] = set()
        while left | settled != expected:
            left.update(each.message.id for each in await receive_surely(gateway, subscription))
        assert count
        assert left.isdisjoint(settled)
