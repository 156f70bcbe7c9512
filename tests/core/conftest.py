"""Fixtures of the core's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog.testing

from pump import App
from pump.stores.spill import MemorySpill
from pump.testing.virtual_clock import VirtualClock

from .faulty_gateway import FaultyGateway


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def gateway(clock: VirtualClock) -> FaultyGateway:
    return FaultyGateway(clock)


@pytest.fixture
def app(gateway: FaultyGateway, clock: VirtualClock) -> App:
    return App(gateway, clock=clock, spill=MemorySpill())


@pytest.fixture
def quiet() -> Iterator[None]:
    """Swallow the log, where a test breaks what would print long tracebacks."""
    with structlog.testing.capture_logs():
        yield
