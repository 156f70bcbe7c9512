"""Connections that are cut: nothing is lost, and work goes on by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed
from pump.testing.builders import a_message, a_subscription
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import a_job_subscription, make, work_off

from .conftest import OpenGateway

pytestmark = pytest.mark.broker
LEASE = timedelta(seconds=10)


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


async def test_when_nobody_listens_then_opening_says_so(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer
) -> None:
    """R51: and opens once somebody does."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        port = proxy.port
    with pytest.raises(ConnectionFailed, match=str(port)):
        await open_gateway(port=port)


async def test_when_the_link_dies_without_a_word_then_a_receive_goes_on_by_another(
    open_gateway: OpenGateway,
    servicebus: ServiceBusPeer,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody hangs up: it only looks as if the queue were empty."""
    monkeypatch.setattr("gateways.servicebus.receive_link.SILENT_S", 1.0)
    sending = await open_gateway()
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        # The dead link may be given the message first, and keeps it for as long as a lock lasts.
        subscription = a_subscription(name, lease=timedelta(seconds=5))
        await make(gateway, subscription)
        consumer = gateway.consumer(subscription)
        await consumer.receive(max_count=1, wait_s=0.0)
        waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=30))
        await yield_to_loop()

        proxy.freeze()
        await sending.producer(name).send([a_message("A")])

        assert [each.message.body for each in await waiting] == [b"A"]
