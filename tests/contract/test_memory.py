"""The memory gateway keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from unittest.mock import AsyncMock

import pytest

from gateways.memory import MemoryGateway
from pump.testing import VirtualClock
from pump.testing.contract import GatewayContract, Rig


class TestMemory(GatewayContract):
    @pytest.fixture
    async def rig(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
        clock = VirtualClock()
        gateway = MemoryGateway(clock=clock)
        await gateway.open()
        settling = AsyncMock(wraps=gateway._engine.settle)
        monkeypatch.setattr(gateway._engine, "settle", settling)
        rig = Rig(gateway=gateway, clock=clock, settle_requests=lambda: settling.await_count)
        yield rig
        await rig.aclose()
