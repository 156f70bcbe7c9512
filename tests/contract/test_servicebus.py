"""The Service Bus gateway keeps the contract through the real SDK, on a peer that is not Azure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest

from gateways.servicebus import ServiceBusGateway, ServiceBusSettings, sdk
from pump.ports import Gateway
from pump.testing.contract import GatewayContract, Network, Rig
from pump.testing.travelling_clock import TravellingClock
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.brokers.tcp_proxy import TcpProxy

from .conftest import CountCalls
from .loop_contract import LoopContract

pytestmark = pytest.mark.broker

# Azure's least; the peer refuses less, as Azure does.
WINDOW_S = 20.0
LOOK = "servicebus receiving"
PULLING = "servicebus pull"


@attrs.frozen
class BothWays:
    """The network in front of a namespace and of its administration."""

    amqp: TcpProxy
    http: TcpProxy

    def sever(self) -> None:
        self.amqp.sever()
        self.http.sever()

    def shut(self) -> None:
        self.amqp.shut()
        self.http.shut()

    def let_in(self) -> None:
        self.amqp.let_in()
        self.http.let_in()


class OnThePeer:
    """Over real connections; the peer's time and ours are skipped together."""

    @pytest.fixture
    async def rig(
        self,
        travelling_servicebus: ServiceBusPeer,
        request: pytest.FixtureRequest,
        count_calls: CountCalls,
    ) -> AsyncIterator[Rig]:
        peer = travelling_servicebus
        gateways: list[ServiceBusGateway] = []

        def under_way() -> list[asyncio.Task[Any]]:
            return [task for each in gateways for task in each._connections.chores._tasks]

        clock = TravellingClock(
            peer.travel,
            ahead_s=peer.ahead_s,
            is_busy=lambda: any(task.get_name() not in (LOOK, PULLING) for task in under_way()),
            looks=lambda: [task for task in under_way() if task.get_name() == LOOK],
        )
        settings = ServiceBusSettings.from_connection_string(
            peer.connection_string(),
            admin_port=peer.http_port,
            look_s=0.1,
            # Of time that is skipped a slow request has no part.
            request_timeout_s=3_600.0,
        )

        async def open_gateway(at: ServiceBusSettings = settings) -> ServiceBusGateway:
            gateway = ServiceBusGateway(at, clock)
            gateways.append(gateway)
            await gateway.open()
            return gateway

        @asynccontextmanager
        async def behind_network() -> AsyncIterator[tuple[Gateway, Network]]:
            async with TcpProxy(peer.amqp_port) as amqp, TcpProxy(peer.http_port) as http:
                by_proxies = attrs.evolve(settings, port=amqp.port, admin_port=http.port)
                gateway = await open_gateway(by_proxies)
                yield gateway, BothWays(amqp, http)
                await gateway.aclose()

        rig = Rig(
            gateway=await open_gateway(),
            clock=clock,
            poll_s=1.0,
            slack_s=2.0,
            ordered_options=ordered_options(request),
            deduplication_window_s=WINDOW_S,
            open_again=open_gateway,
            in_another_process=partial(ServiceBusGateway, settings),
            behind_network=behind_network,
            settle_requests=count_calls(sdk, "settle"),
        )
        yield rig
        await rig.aclose()
        peer.delete(rig.name(""))


class TestServiceBus(OnThePeer, GatewayContract):
    """All of the contract."""


@pytest.mark.loops("uvloop")
class TestServiceBusOnUvloop(OnThePeer, LoopContract):
    """On the loop that `pump run` uses."""


def ordered_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A queue has sessions, or is received from without: the session tests have theirs."""
    if "Session" in request.function.__qualname__.split(".")[0]:
        return {"sessions": True}
    return {"deduplication_window": WINDOW_S}
