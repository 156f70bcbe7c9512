"""Deadlines: many timeouts of one length, and one timer."""

from __future__ import annotations

import asyncio

import pytest

from pump.clock import yield_to_loop
from pump.tasks import Deadlines
from pump.testing import VirtualClock


class Waits:
    """Tasks that wait under one `Deadlines` of ten seconds until they are let go."""

    def __init__(self, clock: VirtualClock) -> None:
        self.deadlines = Deadlines(clock, 10.0)
        self.doors: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[str]] = {}

    async def begin(self, name: str) -> None:
        self.doors[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._wait(name))
        await yield_to_loop()

    async def _wait(self, name: str) -> str:
        try:
            async with self.deadlines.begin():
                await self.doors[name].wait()
        except TimeoutError:
            return "late"
        return "in time"

    def ended(self) -> dict[str, str]:
        return {name: task.result() for name, task in self.tasks.items() if task.done()}


@pytest.fixture
def waits(clock: VirtualClock) -> Waits:
    return Waits(clock)


async def test_when_each_began_at_another_time_then_each_ends_at_its_own(
    waits: Waits, clock: VirtualClock
) -> None:
    await waits.begin("first")
    await clock.advance(4)
    await waits.begin("second")

    await clock.advance(6)
    assert waits.ended() == {"first": "late"}

    await clock.advance(3.9)
    assert waits.ended() == {"first": "late"}
    await clock.advance(0.1)
    assert waits.ended() == {"first": "late", "second": "late"}


async def test_when_the_oldest_ends_in_time_then_the_next_one_still_ends_at_its_own(
    waits: Waits, clock: VirtualClock
) -> None:
    await waits.begin("first")
    await clock.advance(4)
    await waits.begin("second")
    waits.doors["first"].set()
    await clock.advance(9.9)
    assert waits.ended() == {"first": "in time"}

    await clock.advance(0.1)

    assert waits.ended() == {"first": "in time", "second": "late"}


async def test_when_all_have_ended_then_no_timer_is_left_and_another_may_begin(
    waits: Waits, clock: VirtualClock
) -> None:
    await waits.begin("first")
    waits.doors["first"].set()
    await clock.advance(1)
    assert clock.next_due_in_s() is None

    await waits.begin("second")
    await clock.advance(10)

    assert waits.ended() == {"first": "in time", "second": "late"}
    assert clock.next_due_in_s() is None


async def test_when_a_waiter_is_cancelled_from_outside_then_that_is_no_timeout(
    waits: Waits, clock: VirtualClock
) -> None:
    """Law 6."""
    await waits.begin("first")
    waits.tasks["first"].cancel()
    await clock.advance(0)

    assert waits.tasks["first"].cancelled()
    assert clock.next_due_in_s() is None
