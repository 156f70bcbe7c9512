"""A watched pump on the memory and the local gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateways.memory import MemoryGateway
from pump.clock import SYSTEM_CLOCK
from pump.gateway_url import gateway_from_url

from .suite import MakeGateway, Watched


class TestWatchedInMemory(Watched):
    @pytest.fixture
    def make_gateway(self) -> MakeGateway:
        return MemoryGateway


class TestWatchedOnLocal(Watched):
    @pytest.fixture
    def make_gateway(self, tmp_path: Path) -> MakeGateway:
        return lambda: gateway_from_url(f"local://{tmp_path}/queues", SYSTEM_CLOCK)
