"""Idle detector: when a queue that is said to be empty is."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from gateways.memory import MemoryGateway
from pump import Command, Subscription
from pump.capabilities import Capabilities
from pump.performer import LOOKS_AT_ESTIMATES, IdleDetector, Performer
from pump.ports import AdminPort, QueueStats
from pump.testing.virtual_clock import VirtualClock

HAVE_ONE = QueueStats(name="orders", visible=1, in_flight=0, delayed=0)
HAVE_NONE = QueueStats(name="orders", visible=0, in_flight=0, delayed=0)


class Place(Command):
    """An order."""


class Asked(MemoryGateway):
    """Says of its queue what it is told to say, and the last of it for ever."""

    def __init__(self, clock: VirtualClock, *answers: QueueStats, is_exact: bool) -> None:
        super().__init__(clock)
        self._answers = list(answers)
        self._is_exact = is_exact
        self.looks = 0

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(super().capabilities, has_exact_stats=self._is_exact)

    def admin(self) -> AdminPort:
        return self  # type: ignore[return-value]

    async def stats(self, queue: str) -> QueueStats:
        self.looks += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def looks_until_empty(*answers: QueueStats, **facts: Any) -> int:
    clock = VirtualClock(chance=0.0)
    gateway = Asked(clock, *answers, **facts)
    performer = Performer(Subscription(queue="orders", request=Place), concurrency=1)
    waiting = asyncio.create_task(IdleDetector([performer], gateway, clock).wait())
    await clock.advance(60)
    assert waiting.done()
    return gateway.looks


async def test_when_depths_are_counted_then_one_look_at_an_empty_queue_is_enough() -> None:
    assert await looks_until_empty(HAVE_NONE, is_exact=True) == 1
    assert await looks_until_empty(HAVE_ONE, HAVE_NONE, is_exact=True) == 2


@pytest.mark.parametrize("missed", range(1, LOOKS_AT_ESTIMATES))
async def test_when_an_estimate_misses_a_message_then_the_queue_is_not_taken_for_empty(
    missed: int,
) -> None:
    """A message on its way from visible to in flight was in neither: a run ended without it."""
    answers = [HAVE_NONE] * missed + [HAVE_ONE, HAVE_NONE]

    looks = await looks_until_empty(*answers, is_exact=False)

    assert looks == missed + 1 + LOOKS_AT_ESTIMATES
