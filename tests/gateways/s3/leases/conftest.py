"""A world a test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateways.s3.leases.worlds import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.aclose()
