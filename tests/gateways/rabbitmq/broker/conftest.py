"""A gateway on the run's RabbitMQ, and queues of the test's own on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from pump.message import new_id
from tests.gateways.rabbitmq.queues import delete_queues

OpenGateway = Callable[..., Awaitable[RabbitMQGateway]]


@pytest.fixture
async def open_gateway(rabbitmq_url: str) -> AsyncIterator[OpenGateway]:
    """Open a gateway, on another URL if one is given; closed at the end."""
    async with AsyncExitStack() as opened:

        async def open_one(url: str = rabbitmq_url) -> RabbitMQGateway:
            gateway = RabbitMQGateway(RabbitMQSettings.from_url(url))
            opened.push_async_callback(gateway.aclose)
            await gateway.open()
            return gateway

        yield open_one


@pytest.fixture
async def gateway(open_gateway: OpenGateway) -> RabbitMQGateway:
    return await open_gateway()


@pytest.fixture
async def name(rabbitmq_url: str) -> AsyncIterator[str]:
    """A queue name of the test's own; what is made under it is removed."""
    run = new_id()
    yield f"orders-{run}"
    await delete_queues(rabbitmq_url, run)
