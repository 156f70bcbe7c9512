"""Gateways on the worker's peer, and queues of the test's own on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateways.servicebus import ServiceBusGateway, ServiceBusSettings
from pump.message import new_id
from tests.brokers.servicebus_peer.process import ServiceBusPeer

OpenGateway = Callable[..., Awaitable[ServiceBusGateway]]


def settings_of(
    peer: ServiceBusPeer, *, port: int | None = None, key_name: str = "peer", **fields: Any
) -> ServiceBusSettings:
    """How a gateway reaches a peer, through a proxy's port if one is given."""
    return ServiceBusSettings.from_connection_string(
        peer.connection_string(port=port, key_name=key_name), admin_port=peer.http_port, **fields
    )


@pytest.fixture
async def open_gateway(servicebus: ServiceBusPeer) -> AsyncIterator[OpenGateway]:
    """Open a gateway; closed at the end."""
    async with AsyncExitStack() as opened:

        async def open_one(peer: ServiceBusPeer = servicebus, **fields: Any) -> ServiceBusGateway:
            gateway = ServiceBusGateway(settings_of(peer, **fields))
            opened.push_async_callback(gateway.aclose)
            await gateway.open()
            return gateway

        yield open_one


@pytest.fixture
async def gateway(open_gateway: OpenGateway) -> ServiceBusGateway:
    return await open_gateway()


@pytest.fixture
def name(servicebus: ServiceBusPeer) -> Iterator[str]:
    """A queue name of the test's own; what is made under it is removed."""
    run = new_id()
    yield f"orders-{run}"
    servicebus.delete(run)
