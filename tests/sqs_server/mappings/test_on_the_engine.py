"""Mappings on the engine they were made for (R46, T3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateways.sqs_server.config import MappingConfig
from gateways.sqs_server.engine import Queue, SqsEngine, open_store
from gateways.sqs_server.mappings import EventSource
from gateways.sqs_server.model import (
    Attribute,
    NewMessage,
    QueueId,
    RedrivePolicy,
    SqsQueueSettings,
)
from pump.testing.virtual_clock import VirtualClock

from .conftest import Project

DEAD = QueueId("000000000000", "eu-west-1", "orders-dead")
RECORDS = """
    records = []

    async def on_orders(event, context):
        records.extend(event["Records"])
        {then}
"""


@pytest.fixture(params=["memory", "disk"])
async def real(
    request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path
) -> AsyncIterator[SqsEngine]:
    engine = SqsEngine(clock, open_store(tmp_path / "data" if request.param == "disk" else None))
    await engine.open()
    yield engine
    await engine.aclose()


async def make(engine: SqsEngine, name: str = "orders", **settings: Any) -> Queue:
    address = QueueId("000000000000", "eu-west-1", name)
    return await engine.create(SqsQueueSettings(address=address, **settings))


def mapping_of(
    project: Project, engine: SqsEngine, queue: Queue, clock: VirtualClock, **settings: Any
) -> EventSource:
    config = MappingConfig(
        queue=queue.address.name, function=f"{project.module}:on_orders", **settings
    )
    return EventSource(engine, queue, config, clock, root=project.folder)


def bodies_in(project: Project) -> list[str]:
    return [record["body"] for record in project.state().records]


async def test_when_messages_are_sent_then_the_function_gets_them_and_they_are_gone(
    project: Project, real: SqsEngine, clock: VirtualClock
) -> None:
    project.write(RECORDS.format(then=""))
    queue = await make(real)
    mapping = mapping_of(project, real, queue, clock)
    running = asyncio.create_task(mapping.run())

    await clock.advance(100)
    attributes = {"kind": Attribute("String", "order")}
    await real.send(queue, [NewMessage(body="a", attributes=attributes), NewMessage(body="b")])
    await clock.advance(1)
    await mapping.drain()
    await running

    [first, _] = project.state().records
    assert first["messageAttributes"]["kind"]["stringValue"] == "order"
    assert first["attributes"]["ApproximateReceiveCount"] == "1"
    assert sorted(bodies_in(project)) == ["a", "b"]
    assert counted(real, queue) == (0, 0)


async def test_when_the_function_keeps_raising_then_the_message_is_dead_lettered(
    project: Project, real: SqsEngine, clock: VirtualClock
) -> None:
    project.write(RECORDS.format(then="raise ValueError"))
    dead = await make(real, "orders-dead")
    queue = await make(
        real, visibility_timeout_s=10, redrive=RedrivePolicy(target=DEAD, max_receive_count=3)
    )
    await real.send(queue, [NewMessage(body="a")])
    mapping = mapping_of(project, real, queue, clock)
    running = asyncio.create_task(mapping.run())

    for _ in range(40):
        await clock.advance(1)
    await mapping.drain()
    await running

    assert bodies_in(project) == ["a", "a", "a"]
    assert (counted(real, queue), counted(real, dead)) == ((0, 0), (1, 0))


async def test_when_drained_in_a_window_then_what_was_gathered_is_visible(
    project: Project, real: SqsEngine, clock: VirtualClock
) -> None:
    project.write(RECORDS.format(then=""))
    queue = await make(real)
    await real.send(queue, [NewMessage(body=letter) for letter in "abc"])
    mapping = mapping_of(project, real, queue, clock, batching_window_s=20)
    running = asyncio.create_task(mapping.run())
    for _ in range(5):
        await clock.advance(1)
    assert counted(real, queue) == (0, 3)

    await mapping.drain()
    await running

    assert counted(real, queue) == (3, 0)


async def test_when_groups_share_a_queue_then_each_is_in_order(
    project: Project, real: SqsEngine, clock: VirtualClock
) -> None:
    project.write(RECORDS.format(then=""))
    queue = await make(real, "orders.fifo")
    await real.send(
        queue,
        [
            NewMessage(body=f"{group}{number}", group=group, deduplication_id=f"{group}{number}")
            for number in range(5)
            for group in "xy"
        ],
    )
    mapping = mapping_of(project, real, queue, clock, batch_size=2)
    running = asyncio.create_task(mapping.run())

    for _ in range(10):
        await clock.advance(1)
    await mapping.drain()
    await running

    for group in "xy":
        bodies = [body for body in bodies_in(project) if body[0] == group]
        assert bodies == [f"{group}{number}" for number in range(5)]


async def test_when_the_queue_is_deleted_while_it_is_polled_then_the_loop_stays_free(
    project: Project, real: SqsEngine, clock: VirtualClock
) -> None:
    project.write(RECORDS.format(then=""))
    queue = await make(real)
    mapping = mapping_of(project, real, queue, clock)
    running = asyncio.create_task(mapping.run())
    await clock.advance(5)

    await real.delete_queue(queue)
    await clock.advance(60)
    again = await make(real)
    await real.send(again, [NewMessage(body="a")])
    await clock.advance(3)
    await mapping.drain()
    await running

    assert bodies_in(project) == ["a"]


async def test_when_the_engine_closes_first_then_the_mapping_does_not_spin(
    project: Project, real: SqsEngine, clock: VirtualClock
) -> None:
    project.write(RECORDS.format(then=""))
    mapping = mapping_of(project, real, await make(real), clock)
    running = asyncio.create_task(mapping.run())
    await clock.advance(5)

    await real.aclose()
    await clock.advance(10)
    await mapping.drain()

    await running


def counted(engine: SqsEngine, queue: Queue) -> tuple[int, int]:
    counts = engine.counts(queue)
    return counts.visible, counts.in_flight
