"""The RabbitMQ gateway keeps the contract on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aio_pika
import attrs
import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings, amqp
from pump.ports import Gateway
from pump.testing.contract import GatewayContract, Network, Rig, WaitingClock
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.rabbitmq.queues import delete_queues

from .conftest import CountCalls
from .loop_contract import LoopContract

pytestmark = pytest.mark.broker


class OnRabbitMQ:
    """Quorum queues over one connection, in real time."""

    @pytest.fixture
    async def rig(self, rabbitmq_url: str, count_calls: CountCalls) -> AsyncIterator[Rig]:
        clock = WaitingClock()
        settings = RabbitMQSettings.from_url(rabbitmq_url)

        async def open_gateway() -> RabbitMQGateway:
            gateway = RabbitMQGateway(settings, clock)
            await gateway.open()
            return gateway

        async def store_raw(queue: str, raw: bytes) -> None:
            async with await aio_pika.connect(rabbitmq_url) as connection:
                channel = await connection.channel()
                await channel.default_exchange.publish(aio_pika.Message(raw), routing_key=queue)

        @asynccontextmanager
        async def behind_network() -> AsyncIterator[tuple[Gateway, Network]]:
            async with TcpProxy(settings.port) as proxy:
                gateway = RabbitMQGateway(attrs.evolve(settings, port=proxy.port), clock)
                await gateway.open()
                yield gateway, proxy
                await gateway.aclose()

        rig = Rig(
            gateway=await open_gateway(),
            clock=clock,
            # What has to happen within a tick must do so on a machine that others keep busy, too.
            tick_s=3.0,
            # A server that others keep busy needs a moment for what it has; first looks at a
            # queue with sessions make half a dozen queues.
            poll_s=2.0,
            slack_s=2.0,
            lag_s=0.3,
            ordered_options={"sessions": True},
            open_again=open_gateway,
            in_another_process=partial(RabbitMQGateway, settings),
            store_raw=store_raw,
            behind_network=behind_network,
            leases_outlive_connections=False,
            hands_back_uncounted=True,
            settle_requests=count_calls(amqp, "tell"),
        )
        yield rig
        await rig.aclose()
        await delete_queues(rabbitmq_url, rig.name(""))


class TestRabbitMQ(OnRabbitMQ, GatewayContract):
    """All of the contract."""


@pytest.mark.loops("uvloop")
class TestRabbitMQOnUvloop(OnRabbitMQ, LoopContract):
    """On the loop that `pump run` uses."""
