"""Draining while functions run: they are given their time (R46)."""

from __future__ import annotations

import asyncio

import pytest

from pump.testing.virtual_clock import VirtualClock

from .conftest import BLOCKS_ITS_LOOP, HOLDS, RESISTS, Project, Start, until
from .fake_engine import FakeEngine, FakeQueue


@pytest.fixture
def clock() -> VirtualClock:
    """Does not wait long for a function that holds its thread on purpose."""
    return VirtualClock(thread_patience_s=0.05)


@pytest.mark.parametrize("count", [1, 40])
async def test_when_drained_then_what_runs_ends_and_nothing_new_begins(
    count: int,
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
) -> None:
    project.write(HOLDS)
    engine.send(queue, *map(str, range(count)))
    mapping = start(queue, max_concurrency=2)
    await until(lambda: project.called() == (1 if count == 1 else 2))

    draining = asyncio.create_task(mapping.drain())
    await clock.settle()
    assert not draining.done()
    project.state().go_on.set()
    await draining

    assert mapping.counters.succeeded == min(count, 20)
    assert len(queue.bodies) == max(0, count - 20)
    assert engine.hidden(queue) == []


async def test_when_drained_between_two_parts_then_the_second_is_visible_at_once(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(HOLDS)
    engine.send(queue, *(letter * 1_000_000 for letter in "abcdefgh"))
    mapping = start(queue)
    await until(lambda: project.called() == 1)

    draining = asyncio.create_task(mapping.drain())
    await clock.settle()
    project.state().go_on.set()
    await draining

    assert [body[0] for body in queue.bodies] == ["f", "g", "h"]
    assert engine.hidden(queue) == []


@pytest.mark.parametrize("source", [HOLDS, BLOCKS_ITS_LOOP, RESISTS])
async def test_when_drained_then_a_function_that_never_ends_is_given_its_time_and_no_more(
    source: str,
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
) -> None:
    project.write(source)
    engine.send(queue, "a")
    mapping = start(queue, timeout_s=10)
    await until(lambda: project.called() == 1)

    draining = asyncio.create_task(mapping.drain())
    await clock.advance(9.9)
    assert not draining.done()
    await clock.advance(1.1)

    assert draining.done()
    assert mapping.counters.failed == 1
    project.state().go_on.set()
