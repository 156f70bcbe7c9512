"""The RabbitMQ gateway keeps the contract on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import aio_pika
import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from pump.testing.contract import GatewayContract, Rig, WaitingClock
from tests.brokers.patience import PATIENCE
from tests.gateways.rabbitmq.queues import delete_queues

pytestmark = pytest.mark.broker


class TestRabbitMQ(GatewayContract):
    """Quorum queues over one connection, in real time."""

    @pytest.fixture
    async def rig(self, rabbitmq_url: str) -> AsyncIterator[Rig]:
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

        rig = Rig(
            gateway=await open_gateway(),
            clock=clock,
            tick_s=1.0 * PATIENCE,
            # A server that others keep busy needs a moment for what it has; first looks at a
            # queue with sessions make half a dozen queues.
            poll_s=0.8,
            slack_s=2.0 * PATIENCE,
            ordered_options={"sessions": True},
            open_again=open_gateway,
            in_another_process=partial(RabbitMQGateway, settings),
            store_raw=store_raw,
        )
        yield rig
        await rig.aclose()
        await delete_queues(rabbitmq_url, rig.name(""))
