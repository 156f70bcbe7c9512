"""The plainest gateway keeps the contract: what a saboteur of it fails, its sabotage broke."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pump.capabilities import Capabilities
from pump.testing import VirtualClock
from pump.testing.contract import GatewayContract, Rig
from pump.testing.contract.claims import ClaimContract

from .naive import CHOOSY, EVERYTHING, LIMITED, PLAIN, NaiveGateway


def naive_rig(capabilities: Capabilities) -> Rig:
    clock = VirtualClock()
    gateway = NaiveGateway(clock, capabilities)

    async def open_again() -> NaiveGateway:
        gateway.restart()
        gateway.reload()
        return gateway

    return Rig(
        gateway=gateway,
        clock=clock,
        open_again=open_again,
        settle_requests=lambda: gateway.settle_requests,
        store_raw=gateway.store_raw,
    )


class TestNaive(GatewayContract):
    @pytest.fixture(
        params=[EVERYTHING, CHOOSY, PLAIN], ids=lambda capabilities: capabilities.gateway
    )
    async def rig(self, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
        rig = naive_rig(request.param)
        yield rig
        await rig.aclose()


class TestNaiveWithLimits(ClaimContract):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[Rig]:
        rig = naive_rig(LIMITED)
        yield rig
        await rig.aclose()
