"""Payload encryption on the memory and the local gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateways.memory import MemoryGateway
from pump.clock import SYSTEM_CLOCK
from pump.gateway_url import gateway_from_url
from pump.ports import Gateway, PayloadEncryption

from .bench import Shop
from .suite import OpenShop, Sealed


class TestSealedInMemory(Sealed):
    @pytest.fixture
    def open_shop(self) -> OpenShop:
        gateway = MemoryGateway()
        return lambda encryption: Shop(gateway, encryption, "orders")


class TestSealedOnLocal(Sealed):
    @pytest.fixture
    def open_shop(self, tmp_path: Path) -> OpenShop:
        def open_one(encryption: PayloadEncryption | None) -> Shop:
            gateway: Gateway = gateway_from_url(f"local://{tmp_path}/queues", SYSTEM_CLOCK)
            return Shop(gateway, encryption, "orders")

        return open_one
