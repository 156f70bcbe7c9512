"""Fixtures of the server engine's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pump.testing.virtual_clock import VirtualClock

from .shop import Shop


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def shop(clock: VirtualClock) -> AsyncIterator[Shop]:
    """An engine that keeps nothing, without queues."""
    shop = await Shop.open(clock)
    yield shop
    await shop.engine.aclose()
