"""The memory gateway keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways._engine.engine import QueueEngine
from gateways.memory import MemoryGateway
from pump.testing import VirtualClock
from pump.testing.contract import GatewayContract, Rig

from .conftest import CountCalls


class TestMemory(GatewayContract):
    @pytest.fixture
    async def rig(self, count_calls: CountCalls) -> AsyncIterator[Rig]:
        clock = VirtualClock()
        gateway = MemoryGateway(clock=clock)
        await gateway.open()
        settles = count_calls(QueueEngine, "settle")
        rig = Rig(gateway=gateway, clock=clock, settle_requests=settles)
        yield rig
        await rig.aclose()
