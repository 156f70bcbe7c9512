"""The NATS gateway keeps the contract on a real server (R55, R76)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import nats as nats_client
import pytest

from gateways.nats import NatsGateway, NatsSettings
from pump.testing.contract import GatewayContract, Rig, WaitingClock
from tests.brokers.nats_server import NatsServer
from tests.brokers.patience import PATIENCE

pytestmark = pytest.mark.broker

WINDOW_S = 4.0 * PATIENCE


async def open_rig(server: NatsServer) -> Rig:
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

    return Rig(
        gateway=await open_gateway(),
        clock=clock,
        # The server's timers are good to milliseconds; hundreds of receives that begin are not,
        # nor is a machine that others keep busy.
        tick_s=1.0 * PATIENCE,
        slack_s=1.5 * PATIENCE,
        wait_s=1.0,
        ordered_options={"deduplication_window": WINDOW_S, "sessions": True},
        deduplication_window_s=WINDOW_S,
        redrives_on_receive=True,
        open_again=open_gateway,
        in_another_process=partial(NatsGateway, settings),
        store_raw=store_raw,
    )


class TestNats(GatewayContract):
    @pytest.fixture
    async def rig(self, nats: NatsServer) -> AsyncIterator[Rig]:
        rig = await open_rig(nats)
        yield rig
        await rig.aclose()
