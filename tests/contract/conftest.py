"""Fixtures of the contract's runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from pump.testing.contract.durability import ResilienceContract

from ..loops import BOTH_LOOPS, Factory, pytest_asyncio_loop_factories as factories_of

CountCalls = Callable[[object, str], Callable[[], int]]


@pytest.fixture
def count_calls(monkeypatch: pytest.MonkeyPatch) -> CountCalls:
    """Count the calls of an async function or method from now on: how many there were."""

    def count(owner: object, name: str) -> Callable[[], int]:
        call: Callable[..., Awaitable[Any]] = getattr(owner, name)
        calls: list[None] = []

        async def counting(*arguments: Any, **named: Any) -> Any:
            calls.append(None)
            return await call(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)
        return lambda: len(calls)

    return count


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Factory]:
    """Tests of lost connections to brokers run on both loops: their dead transports differ."""
    name = getattr(item, "originalname", None) or item.name
    markers = {marker.name for marker in item.iter_markers()}
    if name in vars(ResilienceContract) and "broker" in markers and "loops" not in markers:
        item.add_marker(BOTH_LOOPS)
    return factories_of(config, item)
