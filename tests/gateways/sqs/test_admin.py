"""The caretaker of SQS queues: create, validate, assume.

What runs on LocalStack runs through both SDKs (R34).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from gateways._aws.sdk_transport import Reply, Request
from pump.capabilities import OrderingMode
from pump.errors import (
    ConfigurationError,
    QueueMismatch,
    QueueNotFound,
    UnsupportedOperation,
)
from pump.observability.vocabulary import QUEUE_DIFFERS
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

from .clouds import CLOUDS, Cloud, open_cloud
from .paper_aws import PaperAws

STRANGER = "999999999999"


@pytest.fixture(params=CLOUDS)
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    async with open_cloud(request) as cloud:
        yield cloud


@pytest.fixture
def paper() -> PaperAws:
    return PaperAws()


async def test_when_created_then_the_queue_is_what_was_asked_for(cloud: Cloud) -> None:
    """R2."""
    options = {"retention": timedelta(hours=1), "delay": timedelta(0), "tags": {"team": "north"}}
    spec = QueueSpec(name="orders", lease=timedelta(seconds=7), options=options)

    await cloud.admin().ensure(spec, MakeChannels.CREATE)

    attributes = await cloud.attributes("orders")
    assert attributes["MessageRetentionPeriod"] == "3600"
    assert attributes["VisibilityTimeout"] == "7"
    assert (await cloud.sqs("list_queue_tags", "orders"))["Tags"] == {"team": "north"}
    await cloud.admin().ensure(spec, MakeChannels.VALIDATE)


async def test_when_a_fifo_queue_is_created_then_it_has_its_options(cloud: Cloud) -> None:
    """R38, R39."""
    options = {"fifo_throughput": "group", "content_based_deduplication": True}

    await cloud.create("orders.fifo", **options)

    attributes = await cloud.attributes("orders.fifo")
    assert attributes["FifoQueue"] == "true"
    assert attributes["ContentBasedDeduplication"] == "true"
    assert attributes["DeduplicationScope"] == "messageGroup"
    assert attributes["FifoThroughputLimit"] == "perMessageGroupId"
    await cloud.validate("orders.fifo", **options)


async def test_when_a_rejection_target_is_created_then_it_keeps_messages_for_14_days(
    cloud: Cloud,
) -> None:
    """R22, R29."""
    await cloud.create("dead.fifo")

    attributes = await cloud.attributes("dead.fifo")
    assert attributes["MessageRetentionPeriod"] == "1209600"
    assert attributes.get("ContentBasedDeduplication", "false") == "false"


async def test_when_created_again_then_nothing_is_made_or_changed(cloud: Cloud) -> None:
    """R2."""
    await cloud.create("orders", retention=timedelta(hours=1))
    cloud.operations.clear()

    with capture_logs() as lines:
        await cloud.create("orders", retention=timedelta(hours=1))

    assert cloud.operations == ["get_queue_url", "get_queue_attributes"]
    assert lines == []


async def test_when_only_existence_matters_then_one_call_finds_it_out(cloud: Cloud) -> None:
    await cloud.create("dead")
    cloud.operations.clear()

    await cloud.create("dead")
    await cloud.validate("dead")

    assert cloud.operations == ["get_queue_url", "get_queue_url"]


async def test_when_many_workers_create_at_once_then_all_succeed(cloud: Cloud) -> None:
    """R53."""
    retentions = [timedelta(hours=hours) for hours in (1, 1, 2, 2, 3, 3)]
    workers = [Cloud(cloud.transport) for _ in retentions]

    await asyncio.gather(
        *(
            worker.create("orders", retention=retention)
            for worker, retention in zip(workers, retentions, strict=True)
        )
    )

    assert await cloud.names() == ["orders"]


async def test_when_assumed_then_nothing_is_asked(cloud: Cloud) -> None:
    """R2."""
    await cloud.ensure("orders", MakeChannels.ASSUME)

    assert cloud.operations == []


@pytest.mark.parametrize("make", MakeChannels)
async def test_when_sqs_has_no_such_queue_then_that_is_said_without_asking(
    paper: PaperAws, make: MakeChannels
) -> None:
    """R36, R37, R76, T7."""
    cloud = Cloud(paper)

    with pytest.raises(UnsupportedOperation):
        await cloud.ensure("orders", make, ordering=OrderingMode.LIFO)
    with pytest.raises(ConfigurationError):
        await cloud.ensure("orders", make, ordering_guarantee=True)

    assert cloud.operations == []


async def test_when_validating_a_missing_queue_then_it_is_named_and_not_made(cloud: Cloud) -> None:
    """R2, R56."""
    with pytest.raises(QueueNotFound) as caught:
        await cloud.validate("orders")

    assert caught.value.queue == "orders"
    assert await cloud.names() == []


async def test_when_validating_a_queue_that_differs_then_all_differences_are_said(
    cloud: Cloud,
) -> None:
    """R56."""
    await cloud.create("orders", retention=timedelta(hours=1), tags={"team": "north"})

    with pytest.raises(QueueMismatch) as caught:
        await cloud.validate(
            "orders", retention=timedelta(hours=2), delay=timedelta(1e-6), tags={"team": "south"}
        )

    assert caught.value.queue == "orders"
    assert caught.value.detail == (
        "MessageRetentionPeriod is 3600, asked for 7200; DelaySeconds is 0, asked for 1; "
        "tag 'team' is 'north', asked for 'south'"
    )


async def test_when_only_the_lease_differs_then_the_queue_is_valid(cloud: Cloud) -> None:
    """Each receive brings its own."""
    await cloud.ensure("orders", MakeChannels.CREATE, lease=timedelta(seconds=5))

    await cloud.ensure("orders", MakeChannels.VALIDATE, lease=timedelta(seconds=50))

    assert (await cloud.attributes("orders"))["VisibilityTimeout"] == "5"


async def test_when_creating_a_queue_that_differs_then_it_is_left_alone_and_one_warning_said(
    cloud: Cloud,
) -> None:
    """R61."""
    await cloud.create("orders", retention=timedelta(hours=1))

    with capture_logs() as lines:
        await cloud.create("orders", retention=timedelta(hours=2))

    assert lines == [
        {
            "event": QUEUE_DIFFERS,
            "log_level": "warning",
            "queue": "orders",
            "differences": ["MessageRetentionPeriod is 3600, asked for 7200"],
        }
    ]
    assert (await cloud.attributes("orders"))["MessageRetentionPeriod"] == "3600"


async def test_when_redrive_is_asked_for_then_the_queue_has_it(cloud: Cloud) -> None:
    """R20, R22."""
    fields = {"max_receive_count": 3, "dead_letter_queue": "dead"}
    await cloud.create("dead")

    await cloud.ensure("orders", MakeChannels.CREATE, **fields)

    policy = json.loads((await cloud.attributes("orders"))["RedrivePolicy"])
    assert policy["deadLetterTargetArn"] == await cloud.arn("dead")
    assert int(policy["maxReceiveCount"]) == 3
    await cloud.ensure("orders", MakeChannels.VALIDATE, **fields)


async def test_when_the_redrive_target_is_given_by_arn_or_url_then_it_is_the_same(
    cloud: Cloud,
) -> None:
    await cloud.create("dead")
    arn, url = await cloud.arn("dead"), await cloud.urls.url_of("dead")

    await cloud.ensure("a", MakeChannels.CREATE, max_receive_count=3, dead_letter_queue=arn)
    await cloud.ensure("b", MakeChannels.CREATE, max_receive_count=3, dead_letter_queue=url)

    for queue in "ab":
        policy = json.loads((await cloud.attributes(queue))["RedrivePolicy"])
        assert policy["deadLetterTargetArn"] == arn


@pytest.mark.parametrize("make", [MakeChannels.CREATE, MakeChannels.VALIDATE])
async def test_when_the_redrive_target_is_missing_then_it_is_named_and_nothing_is_made(
    cloud: Cloud, make: MakeChannels
) -> None:
    """R22."""
    if make is MakeChannels.VALIDATE:
        await cloud.create("orders")
    before = await cloud.names()

    with pytest.raises(QueueNotFound) as caught:
        await cloud.ensure("orders", make, max_receive_count=3, dead_letter_queue="dead")

    assert caught.value.queue == "dead"
    assert await cloud.names() == before


async def test_when_the_redrive_differs_then_validation_says_so_and_creation_leaves_it(
    cloud: Cloud,
) -> None:
    """R22."""
    await cloud.create("dead")
    fields = {"dead_letter_queue": "dead"}
    await cloud.ensure("orders", MakeChannels.CREATE, max_receive_count=3, **fields)

    with pytest.raises(QueueMismatch, match="redrives after 3"):
        await cloud.ensure("orders", MakeChannels.VALIDATE, max_receive_count=4, **fields)
    with capture_logs() as lines:
        await cloud.ensure("orders", MakeChannels.CREATE, max_receive_count=4, **fields)

    assert [line["event"] for line in lines] == [QUEUE_DIFFERS]
    policy = json.loads((await cloud.attributes("orders"))["RedrivePolicy"])
    assert int(policy["maxReceiveCount"]) == 3


async def test_when_no_redrive_is_asked_for_then_a_native_one_is_respected(cloud: Cloud) -> None:
    """R20: the queue's own redrive policy is not ours to change."""
    await cloud.create("dead")
    await cloud.ensure("orders", MakeChannels.CREATE, max_receive_count=3, dead_letter_queue="dead")
    before = (await cloud.attributes("orders"))["RedrivePolicy"]

    with capture_logs() as lines:
        await cloud.create("orders", retention=timedelta(days=4))
        await cloud.validate("orders", retention=timedelta(days=4))

    assert lines == []
    assert (await cloud.attributes("orders"))["RedrivePolicy"] == before


async def test_when_an_existing_queue_is_given_by_url_or_arn_then_it_is_found(
    cloud: Cloud,
) -> None:
    await cloud.create("orders")

    for queue in (await cloud.urls.url_of("orders"), await cloud.arn("orders")):
        await cloud.create(queue)
        await cloud.validate(queue, retention=timedelta(days=14))

    assert await cloud.names() == ["orders"]


async def test_when_a_missing_queue_is_given_by_url_or_arn_then_it_is_not_made(
    cloud: Cloud,
) -> None:
    """R56: it would not be the queue that was meant."""
    await cloud.create("orders")
    url, arn = await cloud.urls.url_of("orders"), await cloud.arn("orders")

    for queue in (f"{url}-missing", f"{arn}-missing"):
        with pytest.raises(ConfigurationError) as caught:
            await cloud.create(queue)
        assert caught.value.value == queue
        with pytest.raises(QueueNotFound) as missing:
            await cloud.validate(queue)
        assert missing.value.queue == queue

    assert await cloud.names() == ["orders"]


async def test_when_the_queues_are_another_accounts_then_none_is_made(paper: PaperAws) -> None:
    """R56."""
    cloud = Cloud(paper, owner=STRANGER)

    with pytest.raises(ConfigurationError, match="another account"):
        await cloud.create("orders")

    assert paper.queues == {}


async def test_when_a_known_queue_was_deleted_then_it_is_made_again(paper: PaperAws) -> None:
    cloud = Cloud(paper)
    await cloud.create("orders")
    paper.queues.clear()

    await cloud.create("orders")

    assert list(paper.queues) == ["orders"]


async def test_when_somebody_else_makes_it_otherwise_meanwhile_then_theirs_stays(
    paper: PaperAws,
) -> None:
    """R53."""
    cloud = Cloud(paper)
    await cloud.create("orders", retention=timedelta(hours=1))

    def find_nothing_at_first(request: Request) -> Reply:
        del paper.answers["get_queue_url"]
        raise QueueNotFound(request["QueueName"])

    paper.answers["get_queue_url"] = find_nothing_at_first
    with capture_logs() as lines:
        await cloud.create("orders", retention=timedelta(hours=2))

    assert paper.queues["orders"].attributes["MessageRetentionPeriod"] == "3600"
    assert [line["event"] for line in lines] == [QUEUE_DIFFERS]


async def test_when_a_new_queue_is_not_known_everywhere_yet_then_creation_waits_for_it(
    paper: PaperAws,
) -> None:
    clock = VirtualClock()
    cloud = Cloud(paper)
    misses = iter([True, True])

    def miss_twice(request: Request) -> Reply:
        if next(misses, False):
            raise QueueNotFound("orders")
        return {"Attributes": paper.queues["orders"].attributes}

    paper.answers["get_queue_attributes"] = miss_twice
    creating = asyncio.create_task(
        cloud.admin(clock=clock).ensure(QueueSpec(name="orders"), MakeChannels.CREATE)
    )
    await clock.advance(1)
    was_waiting = not creating.done()
    await clock.advance(1)

    assert was_waiting
    await creating


async def test_when_a_new_queue_is_never_known_then_that_is_an_error(paper: PaperAws) -> None:
    clock = VirtualClock()
    cloud = Cloud(paper)

    def miss(request: Request) -> Reply:
        raise QueueNotFound("orders")

    paper.answers["get_queue_attributes"] = miss
    creating = asyncio.create_task(
        cloud.admin(clock=clock).ensure(QueueSpec(name="orders"), MakeChannels.CREATE)
    )
    await clock.advance(60)

    with pytest.raises(QueueNotFound):
        await creating


async def test_when_the_queue_is_of_the_other_kind_then_both_modes_refuse_it(
    paper: PaperAws,
) -> None:
    """R37: some servers let a FIFO queue have any name."""
    cloud = Cloud(paper)
    await cloud.create("orders", sse=True)
    paper.queues["orders"].attributes["FifoQueue"] = "true"

    for ensure in (cloud.create, cloud.validate):
        with pytest.raises(QueueMismatch, match="it is a FIFO queue, asked for standard"):
            await ensure("orders", sse=True)
