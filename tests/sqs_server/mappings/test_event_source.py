"""A mapping's batches: what is deleted, what comes again, what is dropped (R46)."""

from __future__ import annotations

import json

import pytest

from gateways.sqs_server.config import MappingConfig
from gateways.sqs_server.config.patterns import read_filters
from gateways.sqs_server.mappings import EventSource, Mapping
from pump.errors import ConfigurationError
from pump.testing.virtual_clock import VirtualClock

from .conftest import Project, Start
from .fake_engine import FakeEngine, FakeQueue

RECORDS = """
    batches = []

    def bodies(event):
        return [record["body"] for record in event["Records"]]

"""
SUCCEEDS = (
    RECORDS
    + """
    def on_orders(event, context):
        batches.append(bodies(event))
"""
)
RAISES = (
    RECORDS
    + """
    def on_orders(event, context):
        batches.append(bodies(event))
        raise ValueError("no")
"""
)


async def test_when_the_function_returns_then_its_messages_are_deleted(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    """R46: polls a queue and invokes a Lambda-style handler with an SQS event."""
    project.write(SUCCEEDS)
    engine.send(queue, "a", "b")

    mapping = start(queue)
    await clock.settle()

    assert project.state().batches == [["a", "b"]]
    assert queue.bodies == []
    counters = mapping.counters
    assert (counters.invocations, counters.succeeded, counters.failed) == (1, 2, 0)


async def test_when_there_are_more_messages_than_a_batch_takes_then_it_is_called_again(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    """R46: respecting batch size."""
    project.write(SUCCEEDS)
    engine.send(queue, *"abcdefg")

    start(queue, batch_size=3)
    await clock.settle()

    assert sorted(map(len, project.state().batches)) == [1, 3, 3]
    assert queue.bodies == []


async def test_when_the_function_raises_then_the_batch_is_visible_after_the_timeout_only(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(RAISES)
    engine.send(queue, "a", "b")

    mapping = start(queue)
    await clock.advance(29)
    assert project.state().batches == [["a", "b"]]
    await clock.advance(1)

    assert project.state().batches == [["a", "b"], ["a", "b"]]
    assert (mapping.counters.succeeded, mapping.counters.failed) == (0, 4)


async def test_when_a_batch_keeps_failing_then_the_queue_dead_letters_it(
    project: Project, engine: FakeEngine, clock: VirtualClock, start: Start
) -> None:
    queue = engine.create(visibility_s=10, max_receive_count=3)
    project.write(RAISES)
    engine.send(queue, "a")

    start(queue)
    await clock.advance(60)

    assert len(project.state().batches) == 3
    assert (queue.dead, queue.bodies) == (["a"], [])


async def test_when_failures_are_reported_then_only_the_others_are_deleted(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(
        """
        def on_orders(event, context):
            bad = [r for r in event["Records"] if r["body"] == "bad"]
            return {"batchItemFailures": [{"itemIdentifier": r["messageId"]} for r in bad]}
        """
    )
    engine.send(queue, "good", "bad", "fine")

    mapping = start(queue, reports_item_failures=True)
    await clock.settle()

    assert queue.bodies == ["bad"] == engine.hidden(queue)
    assert (mapping.counters.succeeded, mapping.counters.failed) == (2, 1)


async def test_when_failures_are_not_asked_for_then_the_return_value_is_ignored(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(
        """
        def on_orders(event, context):
            return {"batchItemFailures": [{"itemIdentifier": event["Records"][0]["messageId"]}]}
        """
    )
    engine.send(queue, "a")

    start(queue)
    await clock.settle()

    assert queue.bodies == []


@pytest.mark.parametrize("answer", ['{"batchItemFailures": [{"itemIdentifier": "other"}]}', "1"])
async def test_when_the_response_makes_no_sense_then_the_whole_batch_has_failed(
    answer: str,
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
) -> None:
    project.write(f"def on_orders(event, context):\n    return {answer}\n")
    engine.send(queue, "a", "b")

    mapping = start(queue, reports_item_failures=True)
    await clock.settle()

    assert engine.hidden(queue) == ["a", "b"]
    assert mapping.counters.failed == 2


async def test_when_the_return_value_is_no_json_then_the_invocation_failed_as_on_lambda(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write("def on_orders(event, context):\n    return object()\n")
    engine.send(queue, "a")

    mapping = start(queue)
    await clock.settle()

    assert mapping.counters.failed == 1


async def test_when_no_filter_matches_then_the_message_is_deleted_unseen(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, json.dumps({"kind": "order"}), json.dumps({"kind": "bill"}), "text")

    mapping = start(queue, filters=read_filters([{"body": {"kind": ["order"]}}]))
    await clock.settle()

    assert project.state().batches == [['{"kind": "order"}']]
    assert queue.bodies == []
    assert (mapping.counters.filtered, mapping.counters.succeeded) == (2, 1)


async def test_when_all_of_a_batch_is_filtered_then_the_function_is_not_called(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "text", "more")

    mapping = start(queue, filters=read_filters(['{"body": ["other"]}']), batching_window_s=5)
    await clock.advance(10)

    assert mapping.counters.invocations == 0
    assert mapping.counters.filtered == 2


async def test_when_deleting_fails_then_the_messages_come_again(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a")
    engine.refuses_deletes = True

    start(queue)
    await clock.advance(29)
    engine.refuses_deletes = False
    await clock.advance(1)

    assert project.state().batches == [["a"], ["a"]]
    assert queue.bodies == []


async def test_when_receiving_fails_then_it_goes_on_once_there_is_room(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a")
    engine.refuses_receives = True

    mapping = start(queue)
    await clock.advance(60)
    assert mapping.counters.invocations == 0
    engine.refuses_receives = False
    await clock.advance(1)

    assert mapping.counters.succeeded == 1


async def test_when_the_queue_is_deleted_and_made_again_then_it_is_polled_again(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(SUCCEEDS)
    mapping = start(queue)
    await clock.settle()

    del engine.queues[queue.settings.address]
    await clock.advance(40)
    again = engine.create()
    engine.send(again, "a")
    await clock.advance(1)

    assert mapping.counters.succeeded == 1


async def test_when_a_mapping_is_disabled_then_nothing_is_imported_or_received(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    engine.send(queue, "a")

    mapping = start(queue, is_enabled=False)
    await clock.advance(60)

    assert mapping.counters.invocations == 0
    assert engine.receives == []
    await mapping.drain()


async def test_when_the_function_is_missing_then_running_says_where_it_is_named(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock
) -> None:
    project.write("def on_order(event, context): ...\n")
    config = MappingConfig(
        queue="orders", function=f"{project.module}:on_orders", origin="local.yaml: mappings[2]"
    )

    with pytest.raises(ConfigurationError) as caught:
        await EventSource(engine, queue, config, clock, root=project.folder).run()

    assert caught.value.field == "local.yaml: mappings[2].function"
    assert f"did you mean {project.module}:on_order?" in caught.value.remedy


def test_the_name_that_aws_uses_is_there() -> None:
    assert Mapping is EventSource
