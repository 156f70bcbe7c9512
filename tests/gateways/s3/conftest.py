from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways.s3 import Layout

from .houses import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    yield house
    for gateway in house.gateways:
        await gateway.aclose()


@pytest.fixture(params=list(Layout), ids=[layout.value for layout in Layout])
def layout(request: pytest.FixtureRequest) -> Layout:
    layout: Layout = request.param
    return layout
