"""The NATS gateway keeps the contract on a real server (R55, R76)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import nats as nats_client
import pytest

from gateways.nats import NatsGateway, NatsSettings
from gateways.nats.link import Link
from pump.ports import Gateway
from pump.testing.contract import GatewayContract, Network, Rig, WaitingClock
from tests.brokers.nats_server import NatsServer
from tests.brokers.tcp_proxy import TcpProxy

from .conftest import CountCalls
from .loop_contract import LoopContract

pytestmark = pytest.mark.broker

WINDOW_S = 6.0


async def open_rig(server: NatsServer, settle_requests: Callable[[], int]) -> Rig:
    """A rig whose time is real: the server's timers are good to a few milliseconds."""
    clock = WaitingClock()
    settings = NatsSettings.from_url(server.url)

    async def open_gateway() -> NatsGateway:
        gateway = NatsGateway(settings, clock)
        await gateway.open()
        return gateway

    async def store_raw(queue: str, raw: bytes) -> None:
        client = await nats_client.connect(server.url)
        await client.jetstream().publish(queue, raw)
        await client.close()

    @asynccontextmanager
    async def behind_network() -> AsyncIterator[tuple[Gateway, Network]]:
        async with TcpProxy(server.port) as proxy:
            url = f"nats://127.0.0.1:{proxy.port}"
            gateway = NatsGateway(NatsSettings.from_url(url), clock)
            await gateway.open()
            yield gateway, proxy
            await gateway.aclose()

    return Rig(
        gateway=await open_gateway(),
        clock=clock,
        # What has to happen within a tick must do so on a machine that others keep busy, too.
        tick_s=3.0,
        slack_s=2.0,
        lag_s=0.3,
        wait_s=5.0,
        ordered_options={"deduplication_window": WINDOW_S, "sessions": True},
        deduplication_window_s=WINDOW_S,
        redrives_on_receive=True,
        open_again=open_gateway,
        in_another_process=partial(NatsGateway, settings),
        store_raw=store_raw,
        behind_network=behind_network,
        settle_requests=settle_requests,
    )


class OnNats:
    """A server of the run's own."""

    @pytest.fixture
    async def rig(self, nats: NatsServer, count_calls: CountCalls) -> AsyncIterator[Rig]:
        rig = await open_rig(nats, count_calls(Link, "request_all"))
        yield rig
        await rig.aclose()


class TestNats(OnNats, GatewayContract):
    """All of the contract."""


@pytest.mark.loops("uvloop")
class TestNatsOnUvloop(OnNats, LoopContract):
    """On the loop that `pump run` uses."""
