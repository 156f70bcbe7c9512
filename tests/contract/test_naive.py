"""The plainest gateway keeps the contract: what a saboteur of it fails, its sabotage broke."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pump.capabilities import Capabilities
from pump.testing import VirtualClock
from pump.testing.contract import GatewayContract, Rig

from .naive import CHOOSY, EVERYTHING, PLAIN, NaiveGateway


class TestNaive(GatewayContract):
    @pytest.fixture(
        params=[EVERYTHING, CHOOSY, PLAIN], ids=lambda capabilities: capabilities.gateway
    )
    async def rig(self, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
        capabilities: Capabilities = request.param
        clock = VirtualClock()
        gateway = NaiveGateway(clock, capabilities)

        async def open_again() -> NaiveGateway:
            gateway.restart()
            return gateway

        rig = Rig(gateway=gateway, clock=clock, open_again=open_again)
        yield rig
        await rig.aclose()
