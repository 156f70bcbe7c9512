"""A schema of the test's own on this process's server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.brokers.postgres_server import PostgresServer

from .bench import Bench


@pytest.fixture
async def bench(postgres: PostgresServer) -> AsyncIterator[Bench]:
    bench = Bench(postgres)
    yield bench
    bench.execute(f'DROP SCHEMA IF EXISTS "{bench.schema}" CASCADE')
