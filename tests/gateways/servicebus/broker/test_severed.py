"""Connections that are cut: nothing is lost, and work goes on by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed
from pump.message import Delivery
from pump.testing.builders import a_message, a_subscription, ack, defer
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import a_job_subscription, make, receive_surely, send_surely, work_off

from .conftest import OpenGateway
from .settle_steps import settle_until_final

pytestmark = pytest.mark.broker
LEASE = timedelta(seconds=10)


async def test_when_connections_are_cut_again_and_again_then_the_pump_handles_everything(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R51: in the middle of sends, of receives and of settles."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        cut_count = 0

        def cut_now_and_then(number: int) -> None:
            nonlocal cut_count
            if number % 25 == 12:
                cut_count += 1
                proxy.sever()

        handled = await work_off(
            gateway, a_job_subscription(name), jobs=100, disturb=cut_now_and_then
        )

        assert set(handled) == set(range(100))
        assert cut_count >= 8
        assert proxy.connection_count > 5


async def test_when_the_service_is_away_for_a_while_then_the_pump_goes_on_by_itself(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R51: as a restart looks from here: every connection is gone, and nobody lets one in."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        loop = asyncio.get_running_loop()
        absences = 0

        def go_away(number: int) -> None:
            nonlocal absences
            if number == 10:
                absences += 1
                proxy.shut()
                loop.call_later(1.0, proxy.let_in)

        handled = await work_off(gateway, a_job_subscription(name), jobs=30, disturb=go_away)

        assert set(handled) == set(range(30))
        assert absences == 2


async def test_when_the_service_is_away_then_calls_say_so_and_recover_by_themselves(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R51: `ConnectionFailed`, and the same ports work again."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        subscription = a_subscription(name)
        await make(gateway, subscription)
        consumer, producer = gateway.consumer(subscription), gateway.producer(name)
        await producer.send([a_message("before")])
        proxy.shut()

        with pytest.raises(ConnectionFailed):
            await producer.send([a_message("lost")])
        with pytest.raises(ConnectionFailed):
            await consumer.receive(max_count=1, wait_s=0.0)
        proxy.let_in()
        await send_surely(gateway, name, a_message("after"))

        received = [*await consumer.receive(max_count=1, wait_s=5)]
        received += await consumer.receive(max_count=1, wait_s=5)
        assert [each.message.body for each in received] == [b"before", b"after"]


async def test_when_nobody_listens_then_opening_says_so(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer
) -> None:
    """R51: and opens once somebody does."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        port = proxy.port
    with pytest.raises(ConnectionFailed, match=str(port)):
        await open_gateway(port=port)


async def test_when_the_connection_is_cut_while_a_message_is_in_hand_then_it_is_still_ours(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R51: the lock is the service's, not the connection's."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        subscription = a_subscription(name, lease=LEASE)
        await make(gateway, subscription)
        consumer = gateway.consumer(subscription)
        await gateway.producer(name).send([a_message()])
        [held] = await consumer.receive(max_count=1, wait_s=5)

        proxy.sever()

        # The first call may meet a connection that does not know yet that it is cut.
        refused = await consumer.settle([ack(held)])
        if refused:
            assert not refused[0].is_final
            refused = await consumer.settle([ack(held)])
        assert not refused
        assert (await gateway.admin().stats(name)).visible == 0


async def test_when_the_connection_is_cut_while_a_receive_waits_then_the_receive_says_so(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R51: at once, not at the end of its wait."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        subscription = a_subscription(name)
        await make(gateway, subscription)
        consumer = gateway.consumer(subscription)
        await consumer.receive(max_count=1, wait_s=0.0)
        waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=60))
        await yield_to_loop()

        proxy.sever()

        with pytest.raises(ConnectionFailed):
            await asyncio.wait_for(waiting, 15)


async def test_when_the_link_dies_without_a_word_then_a_receive_goes_on_by_another(
    open_gateway: OpenGateway,
    servicebus: ServiceBusPeer,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody hangs up: it only looks as if the queue were empty."""
    monkeypatch.setattr("gateways.servicebus.tap.SILENT_S", 1.0)
    sending = await open_gateway()
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        # The dead link may be given the message first, and keeps it for as long as a lock lasts.
        subscription = a_subscription(name, lease=timedelta(seconds=5))
        await make(gateway, subscription)
        consumer = gateway.consumer(subscription)
        await consumer.receive(max_count=1, wait_s=0.0)
        waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=15))
        await yield_to_loop()

        proxy.freeze()
        await sending.producer(name).send([a_message("A")])

        assert [each.message.body for each in await waiting] == [b"A"]


@pytest.mark.parametrize("delay_s", [0.0, 1.0], ids=["ack", "defer"])
async def test_when_the_connection_is_cut_in_the_middle_of_a_settle_then_nothing_is_lost(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer, name: str, delay_s: float
) -> None:
    """Laws 1 and 2: asked again, each is settled, and what was deferred comes again."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        # Given links that are open, and messages in hand for longer than this takes.
        gateway = await open_gateway(port=proxy.port)
        subscription = a_subscription(name, lease=timedelta(minutes=5))
        await make(gateway, subscription)
        messages = [a_message(str(number)) for number in range(20)]
        await gateway.producer(name).send(messages)
        consumer = gateway.consumer(subscription)
        received: list[Delivery] = []
        while len(received) < 20:
            received += await receive_surely(gateway, subscription, 20)
        await gateway.admin().peek(name)
        settlements = [defer(each, seconds=delay_s) if delay_s else ack(each) for each in received]

        # When the request, or its answer, is on its way.
        settling = asyncio.create_task(settle_until_final(consumer, settlements))
        await yield_to_loop()
        proxy.sever()

        # Then
        assert await settling == 0
        left: set[str] = set()
        while delay_s and left != {each.id for each in messages}:
            left.update(each.message.id for each in await receive_surely(gateway, subscription, 20))
        assert delay_s or (await gateway.admin().stats(name)).visible == 0
