"""Fixtures of the operations' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways.sqs_server.engine import Engine, NullStore
from gateways.sqs_server.operations import Operations
from pump.testing.virtual_clock import VirtualClock

from .harness import Service


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def engine(clock: VirtualClock) -> AsyncIterator[Engine]:
    engine = Engine(clock, NullStore())
    await engine.open()
    yield engine
    await engine.aclose()


@pytest.fixture
def service(engine: Engine, clock: VirtualClock) -> Service:
    return Service(Operations(engine, clock=clock), clock)


@pytest.fixture
def strict_service(engine: Engine, clock: VirtualClock) -> Service:
    return Service(Operations(engine, clock=clock, is_strict=True), clock)
