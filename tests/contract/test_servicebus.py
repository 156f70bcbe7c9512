"""The Service Bus gateway keeps the contract through the real SDK, on a peer that is not Azure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from gateways.servicebus import ServiceBusGateway, ServiceBusSettings
from pump.testing.contract import GatewayContract, Rig, WaitingClock
from tests.brokers.patience import PATIENCE
from tests.brokers.servicebus_peer.process import ServiceBusPeer

pytestmark = pytest.mark.broker

# Azure's least; the peer refuses less, as Azure does.
WINDOW_S = 20.0


class TestServiceBus(GatewayContract):
    """Over real connections, in real time."""

    @pytest.fixture
    async def rig(
        self, servicebus: ServiceBusPeer, request: pytest.FixtureRequest
    ) -> AsyncIterator[Rig]:
        clock = WaitingClock()
        settings = ServiceBusSettings.from_connection_string(
            servicebus.connection_string(), admin_port=servicebus.http_port, look_s=0.1
        )

        async def open_gateway() -> ServiceBusGateway:
            gateway = ServiceBusGateway(settings, clock)
            await gateway.open()
            return gateway

        rig = Rig(
            gateway=await open_gateway(),
            clock=clock,
            tick_s=1.4 * PATIENCE,
            slack_s=0.9 * PATIENCE,
            wait_s=1.0,
            ordered_options=ordered_options(request),
            deduplication_window_s=WINDOW_S,
            open_again=open_gateway,
            in_another_process=partial(ServiceBusGateway, settings),
        )
        yield rig
        await rig.aclose()
        servicebus.delete(rig.name(""))


def ordered_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A queue has sessions, or is received from without: the session tests have theirs."""
    if "Session" in request.function.__qualname__.split(".")[0]:
        return {"sessions": True}
    return {"deduplication_window": WINDOW_S}
