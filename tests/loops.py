"""The event loops on which a test runs: asyncio's, unless a marker names others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from pump.event_loop import loop_factory

Factory = Callable[[], asyncio.AbstractEventLoop]
BOTH_LOOPS = pytest.mark.loops("asyncio", "uvloop")
"""Where connections are made and lost: `pump run` uses uvloop, a user's own loop is asyncio's."""


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Factory]:
    """For a `conftest.py` to import. Without uvloop its tests run on asyncio once more."""
    factories: dict[str, Factory] = {
        "asyncio": asyncio.new_event_loop,
        "uvloop": loop_factory() or asyncio.new_event_loop,
    }
    marker = item.get_closest_marker("loops")
    return {name: factories[name] for name in (marker.args if marker else ("asyncio",))}
