"""A queue of the test's own on this process's server."""

from __future__ import annotations

import pytest

from tests.brokers.nats_server import NatsServer

from .bench import Bench


@pytest.fixture
async def bench(nats: NatsServer) -> Bench:
    bench = Bench(nats.url)
    async with bench.gateway() as gateway:
        await bench.make(gateway)
    return bench
