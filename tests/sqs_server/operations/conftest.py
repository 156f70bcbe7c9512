"""Fixtures of the operations' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways.sqs_server.engine import NullStore, SqsEngine
from gateways.sqs_server.operations import Operations
from pump.testing.virtual_clock import VirtualClock

from .harness import Service


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def engine(clock: VirtualClock) -> AsyncIterator[SqsEngine]:
    engine = SqsEngine(clock, NullStore())
    await engine.open()
    yield engine
    await engine.aclose()


@pytest.fixture
def service(engine: SqsEngine, clock: VirtualClock) -> Service:
    return Service(Operations(engine, clock=clock), clock)


@pytest.fixture
def strict_service(engine: SqsEngine, clock: VirtualClock) -> Service:
    return Service(Operations(engine, clock=clock, is_strict=True), clock)
