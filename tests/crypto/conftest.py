"""Fixtures of the encryption's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from pump.crypto import Encryption, Key, KeyRing, KmsKeys, KmsOptions
from pump.events import Event
from pump.observability.telemetry import Counters
from pump.testing.virtual_clock import VirtualClock

from .desk import Desk
from .fake_kms import FakeKms, Make


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing(Key.generate("2026-01"))


@pytest.fixture
async def desk(clock: VirtualClock) -> AsyncIterator[Callable[..., Any]]:
    """Open encryptions, as an app would, and close them at the end: `await desk(encryption)`."""
    async with AsyncExitStack() as stack:

        async def opened(encryption: Encryption) -> Desk:
            counters, events = Counters(), list[Event]()
            stack.push_async_callback(encryption.aclose)
            await encryption.start(counters, events.append)
            return Desk(encryption, counters, events)

        yield opened


@pytest.fixture
def log() -> Iterator[list[MutableMapping[str, Any]]]:
    """Every line that is logged."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def fake() -> FakeKms:
    return FakeKms()


@pytest.fixture
async def make(fake: FakeKms, clock: VirtualClock) -> AsyncIterator[Make]:
    made: list[KmsKeys] = []

    def make_one(*also_open: str, key: str = "alias/orders", **options: Any) -> KmsKeys:
        keys = KmsKeys(
            key,
            also_open=also_open,
            options=KmsOptions(**options),
            connect=fake.connect,
            clock=clock,
        )
        made.append(keys)
        return keys

    yield make_one
    for keys in made:
        await keys.aclose()
