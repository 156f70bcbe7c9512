"""Tags of queues."""

import asyncio
from pathlib import Path

import pytest

from gateways.sqs_server.engine import SqsEngine, open_store
from gateways.sqs_server.operations import Operations
from pump.testing.virtual_clock import VirtualClock

from .harness import Service


async def test_when_a_queue_is_tagged_then_its_tags_are_listed_until_they_are_taken_away(
    service: Service,
) -> None:
    """R44."""
    made = await service.call("CreateQueue", QueueName="orders", tags={"a": "1", "b": "2"})
    url = made["QueueUrl"]

    await service.call("TagQueue", QueueUrl=url, Tags={"b": "two", "B": "", "c": "3"})
    tagged = await service.call("ListQueueTags", QueueUrl=url)
    await service.call("UntagQueue", QueueUrl=url, TagKeys=["a", "b", "not there"])
    fewer = await service.call("ListQueueTags", QueueUrl=url)
    await service.call("UntagQueue", QueueUrl=url, TagKeys=["B", "c"])

    assert tagged == {"Tags": {"a": "1", "b": "two", "B": "", "c": "3"}}
    assert fewer == {"Tags": {"B": "", "c": "3"}}
    assert await service.call("ListQueueTags", QueueUrl=url) == {}


@pytest.mark.parametrize(
    ("operation", "parameters", "message"),
    [
        ("TagQueue", {"Tags": {}}, "The request must contain the parameter Tags."),
        (
            "TagQueue",
            {"Tags": {str(number): "" for number in range(51)}},
            "Too many tags added for queue orders.",
        ),
        (
            "TagQueue",
            {"Tags": {"": "x"}},
            "Tag keys must be between 1 and 128 characters in length.",
        ),
        (
            "TagQueue",
            {"Tags": {"key": "x" * 257}},
            "Tag values must be between 0 and 256 characters in length.",
        ),
        (
            "UntagQueue",
            {"TagKeys": []},
            "Tag keys must be between 1 and 128 characters in length.",
        ),
    ],
)
async def test_when_tags_are_not_allowed_then_none_are_changed(
    service: Service, operation: str, parameters: dict[str, object], message: str
) -> None:
    """R44."""
    url = await service.queue()
    await service.call("TagQueue", QueueUrl=url, Tags={"kept": "x"})

    refused = await service.refusal(operation, QueueUrl=url, **parameters)

    assert refused.message == message
    assert await service.call("ListQueueTags", QueueUrl=url) == {"Tags": {"kept": "x"}}


async def test_when_settings_are_changed_at_the_same_time_then_no_change_is_lost(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """R46."""
    engine = SqsEngine(clock, open_store(tmp_path))
    await engine.open()
    service = Service(Operations(engine, clock=clock), clock)
    url = await service.queue()

    await asyncio.gather(
        service.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "7"}),
        service.call(
            "AddPermission",
            QueueUrl=url,
            Label="label",
            AWSAccountIds=["111111111111"],
            Actions=["*"],
        ),
        *(service.call("TagQueue", QueueUrl=url, Tags={str(key): ""}) for key in range(10)),
    )

    shown = await service.attributes(url)
    tags = await service.call("ListQueueTags", QueueUrl=url)
    await engine.aclose()
    assert len(tags["Tags"]) == 10
    assert shown["DelaySeconds"] == "7"
    assert "label" in shown["Policy"]
