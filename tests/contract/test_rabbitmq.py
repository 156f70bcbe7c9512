"""The RabbitMQ gateway keeps the contract on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

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

        async def open_gateway() -> RabbitMQGateway:
            gateway = RabbitMQGateway(RabbitMQSettings.from_url(rabbitmq_url), clock)
            await gateway.open()
            return gateway

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
        )
        yield rig
        await rig.aclose()
        await delete_queues(rabbitmq_url, rig.name(""))
