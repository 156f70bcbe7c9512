"""Each way in which a handler can end, by itself: what the contract tries together (R93)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateways.memory import MemoryGateway
from pump.testing import VirtualClock
from pump.testing.contract import Rig, hostile


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    clock = VirtualClock()
    rig = Rig(gateway=MemoryGateway(clock=clock), clock=clock)
    await rig.gateway.open()
    yield rig
    await rig.aclose()


def each(statuses: hostile.Expected) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("way", "fate"), list(statuses.items()), ids=[hostile.name_of(way) for way in statuses]
    )


@each(hostile.expected(hostile.ENDS_WELL, hostile.FAILS))
async def test_when_a_coroutine_ends_so_then_its_message_is_settled(
    rig: Rig, way: Callable[[], Any], fate: Any
) -> None:
    """R93."""
    await hostile.try_ways(rig, {way: fate})


@each(hostile.expected(hostile.ENDS_WELL_IN_A_THREAD, hostile.FAILS_IN_A_THREAD))
async def test_when_a_thread_ends_so_then_its_message_is_settled(
    rig: Rig, way: Callable[[], Any], fate: Any
) -> None:
    """R93."""
    await hostile.try_blocking_ways(rig, {way: fate})


@pytest.mark.parametrize("way", hostile.RECALLED, ids=hostile.name_of)
async def test_when_a_handler_takes_a_recall_so_then_its_message_comes_again(
    rig: Rig, way: hostile.Way
) -> None:
    """R93."""
    await hostile.try_recalls(rig, [way])
