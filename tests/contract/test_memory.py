"""The memory gateway keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways.memory import MemoryGateway
from pump.testing import VirtualClock
from pump.testing.contract import GatewayContract, Rig


class TestMemory(GatewayContract):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[Rig]:
        clock = VirtualClock()
        gateway = MemoryGateway(clock=clock)
        await gateway.open()
        rig = Rig(gateway=gateway, clock=clock)
        yield rig
        await rig.aclose()
