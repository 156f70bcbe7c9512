"""Fixtures of the contract's runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pump.testing.contract.durability import ResilienceContract

from ..loops import BOTH_LOOPS, Factory, pytest_asyncio_loop_factories as factories_of


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Factory]:
    """Tests of lost connections to brokers run on both loops: their dead transports differ."""
    name = getattr(item, "originalname", None) or item.name
    markers = {marker.name for marker in item.iter_markers()}
    if name in vars(ResilienceContract) and "broker" in markers and "loops" not in markers:
        item.add_marker(BOTH_LOOPS)
    return factories_of(config, item)
