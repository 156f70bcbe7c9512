"""How large a batch gets: by number, by time, by weight; and in which order (R46)."""

from __future__ import annotations

import pytest

from gateways.sqs_server.config.patterns import read_filters
from gateways.sqs_server.engine import ReceiptProblem
from pump.testing.virtual_clock import VirtualClock

from .conftest import Project, Start
from .fake_engine import FakeEngine, FakeQueue

RECORDS = """
    batches = []

    async def on_orders(event, context):
        batches.append([record["body"][:1] for record in event["Records"]])
        {then}
"""
SUCCEEDS = RECORDS.format(then="")


async def test_when_there_is_a_window_then_the_batch_waits_for_it_from_its_first_message(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    start(queue, batching_window_s=5)
    await clock.advance(100)

    engine.send(queue, "a")
    await clock.advance(3)
    engine.send(queue, "b")
    await clock.advance(1.9)
    assert project.state().batches == []
    await clock.advance(0.1)

    assert project.state().batches == [["a", "b"]]


async def test_when_the_window_outlasts_the_visibility_then_a_message_is_in_the_batch_once(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a", "b")

    start(queue, batching_window_s=100)
    await clock.advance(100)

    assert project.state().batches == [["a", "b"]]
    assert engine.receives == [2, 2, 2, 2]
    assert queue.bodies == []


async def test_when_the_batch_is_full_then_the_window_is_not_waited_for(
    project: Project, engine: FakeEngine, clock: VirtualClock, start: Start
) -> None:
    queue = engine.create(visibility_s=600)
    project.write(SUCCEEDS)
    engine.send(queue, *"abcdefghijklmnopqrstuvwxyz")

    start(queue, batch_size=25, batching_window_s=300)
    await clock.settle()

    assert [len(batch) for batch in project.state().batches] == [25]
    assert engine.receives == [10, 10, 5, 1]
    await clock.advance(300)
    assert [len(batch) for batch in project.state().batches] == [25, 1]


async def test_when_a_window_gathers_six_megabytes_then_it_ends(
    project: Project, engine: FakeEngine, clock: VirtualClock, start: Start
) -> None:
    queue = engine.create(visibility_s=600)
    project.write(SUCCEEDS)
    engine.send(queue, *(letter * 1_000_000 for letter in "abcdefg"))

    start(queue, batch_size=100, batching_window_s=60)
    await clock.settle()

    assert project.state().batches == [["a", "b", "c", "d", "e"], ["f", "g"]]
    assert queue.bodies == []


async def test_when_a_batch_is_too_heavy_then_the_function_is_called_for_each_part_in_turn(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, *(letter * 1_000_000 for letter in "abcdefgh"))

    mapping = start(queue)
    await clock.settle()

    assert project.state().batches == [["a", "b", "c", "d", "e"], ["f", "g", "h"]]
    assert mapping.counters.succeeded == 8


async def test_when_a_part_of_a_group_failed_then_the_rest_of_the_group_waits_with_it(
    project: Project, engine: FakeEngine, clock: VirtualClock, start: Start
) -> None:
    queue = engine.create("orders.fifo")
    project.write(RECORDS.format(then="raise ValueError"))
    engine.send(queue, *(letter * 1_000_000 for letter in "abcdef"), group="ada")

    start(queue)
    await clock.advance(29)

    assert project.state().batches == [["a", "b", "c", "d", "e"]]
    assert len(engine.hidden(queue)) == 6
    await clock.advance(1)
    assert project.state().batches[1] == ["a", "b", "c", "d", "e"]


async def test_when_a_groups_messages_are_in_flight_then_its_others_wait(
    project: Project, engine: FakeEngine, clock: VirtualClock, start: Start
) -> None:
    """R46: order per group, one invocation at a time a group."""
    queue = engine.create("orders.fifo")
    project.write(
        """
        import asyncio
        calls, running = [], set()

        async def on_orders(event, context):
            [record] = event["Records"]
            group = record["attributes"]["MessageGroupId"]
            assert group not in running
            running.add(group)
            calls.append(record["body"])
            for _ in range(3):
                await asyncio.sleep(0)
            running.discard(group)
        """
    )
    for number in range(4):
        engine.send(queue, f"a{number}", group="ada")
        engine.send(queue, f"b{number}", group="bob")

    mapping = start(queue, batch_size=1)
    await clock.settle()

    calls = project.state().calls
    assert [call for call in calls if call[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [call for call in calls if call[0] == "b"] == ["b0", "b1", "b2", "b3"]
    assert mapping.counters.failed == 0


async def test_when_a_group_failed_then_its_next_messages_wait_for_its_timeout(
    project: Project, engine: FakeEngine, clock: VirtualClock, start: Start
) -> None:
    queue = engine.create("orders.fifo")
    # Of this call's own batch: groups are called at the same time.
    project.write(RECORDS.format(then='if event["Records"][0]["body"] == "a": raise ValueError'))
    engine.send(queue, "a", "b", group="ada")
    engine.send(queue, "x", group="bob")

    start(queue, batch_size=1)
    await clock.advance(29)
    assert sorted(project.state().batches) == [["a"], ["x"]]
    await clock.advance(1)

    assert project.state().batches[2:] == [["a"]]


async def test_when_a_fifo_function_reports_one_failure_then_exactly_that_one_stays(
    project: Project, engine: FakeEngine, clock: VirtualClock, start: Start
) -> None:
    """As on AWS: to report what comes after it as well is the function's duty."""
    queue = engine.create("orders.fifo")
    project.write(
        """
        async def on_orders(event, context):
            return {"batchItemFailures": [{"itemIdentifier": event["Records"][1]["messageId"]}]}
        """
    )
    engine.send(queue, *"abc", group="ada")

    start(queue, reports_item_failures=True)
    await clock.settle()

    assert queue.bodies == ["b"]


async def test_when_a_fifo_receipt_has_expired_then_the_refusal_is_said(
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a")
    engine.problem = ReceiptProblem.EXPIRED

    start(queue)
    await clock.settle()

    assert "delete.refused" in caplog.text


async def test_when_the_function_deleted_its_message_itself_then_nothing_is_said(
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a")
    engine.problem = ReceiptProblem.GONE

    start(queue)
    await clock.settle()

    assert "delete.refused" not in caplog.text


async def test_when_drained_in_a_window_then_what_was_gathered_is_visible_at_once(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a", "b")
    mapping = start(queue, batching_window_s=60)
    await clock.advance(1)
    assert engine.hidden(queue) == ["a", "b"]

    await mapping.drain()

    assert engine.hidden(queue) == []
    assert queue.bodies == ["a", "b"]
    assert mapping.counters.invocations == 0


async def test_when_what_was_gathered_cannot_be_given_back_then_draining_ends_all_the_same(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a")
    mapping = start(queue, batching_window_s=60)
    await clock.advance(1)
    engine.refuses_changes = True

    await mapping.drain()

    assert engine.hidden(queue) == ["a"]


async def test_when_drained_while_filtered_messages_are_deleted_then_the_others_are_visible(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a", "b")
    engine.hangs_on_delete = True
    mapping = start(queue, filters=read_filters([{"body": ["b"]}]))
    await clock.advance(1)

    await mapping.drain()

    assert engine.hidden(queue) == ["a"]
    assert mapping.counters.invocations == 0
