"""The doctor of SQS queues: what it asks, and that nothing is changed by asking.

What runs on LocalStack runs through both SDKs (R34).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateways.sqs.doctor import DELETE, EXTEND, RECEIVE, SEND, examine
from pump.findings import Level

from .clouds import CLOUDS, Cloud, open_cloud
from .examining import (
    PROBES,
    READING,
    a_subscription,
    found,
    make_all,
    paper_aws,
    problems,
    set_attributes,
)
from .paper_aws import PaperAws


@pytest.fixture(params=CLOUDS)
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    async with open_cloud(request) as cloud:
        if isinstance(cloud.transport, PaperAws):
            cloud.transport.answers.update(paper_aws().answers)
        yield cloud


async def test_when_all_is_well_then_only_that_is_said(cloud: Cloud) -> None:
    """R34."""
    await make_all(cloud)

    told = await found(cloud)

    assert [each.level for each in told] == [Level.OK] * 2
    assert "queue 'orders' keeps messages for 4d" in told[0].detail
    assert told[1].detail == (
        f"permissions granted: {DELETE} on 'orders', {EXTEND} on 'orders'; not proven without "
        f"using it: {RECEIVE} on 'orders', {SEND} on 'dead', {SEND} on 'odd'"
    )


async def test_when_queues_are_examined_then_nothing_in_them_is_touched(cloud: Cloud) -> None:
    await make_all(cloud)
    counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    if not isinstance(cloud.transport, PaperAws):
        await cloud.sqs("send_message", "orders", MessageBody="one")
    before = [await cloud.attributes(name) for name in ("orders", "dead", "odd")]
    cloud.operations.clear()

    await found(cloud)

    assert set(cloud.operations) <= READING | PROBES
    after = [await cloud.attributes(name) for name in ("orders", "dead", "odd")]
    assert [[each[name] for name in counts] for each in after] == (
        [[each[name] for name in counts] for each in before]
    )
    assert after == before


async def test_when_no_queue_exists_then_it_depends_on_who_makes_them(cloud: Cloud) -> None:
    """R22."""
    assert await problems(cloud) == []

    told = await problems(cloud, a_subscription(make_channels="validate"))

    assert [level for level, _ in told] == [Level.ERROR] * 3
    assert [detail.split(" does not exist")[0] for _, detail in told] == [
        "queue 'orders'",
        "dead-letter queue 'dead'",
        "invalid-message queue 'odd'",
    ]


async def test_when_sqs_redrives_after_one_delivery_then_that_is_found(cloud: Cloud) -> None:
    """R20."""
    await make_all(cloud)
    policy = {"deadLetterTargetArn": await cloud.arn("dead"), "maxReceiveCount": "1"}
    await set_attributes(cloud, "orders", RedrivePolicy=json.dumps(policy))

    [(level, detail)] = await problems(cloud)

    assert level is Level.WARNING
    assert "maxReceiveCount of 1" in detail


async def test_when_sqs_redrives_to_a_queue_we_do_not_name_then_it_is_examined_too(
    cloud: Cloud,
) -> None:
    await make_all(cloud)
    await cloud.create("elsewhere")
    arn = await cloud.arn("elsewhere")
    policy = {"deadLetterTargetArn": arn, "maxReceiveCount": 9}
    await set_attributes(cloud, "orders", RedrivePolicy=json.dumps(policy))
    await set_attributes(cloud, "elsewhere", MessageRetentionPeriod="3600")

    [(level, detail)] = await problems(cloud)

    assert level is Level.WARNING
    assert detail.startswith(f"redrive target {arn!r} keeps messages for 1h")


async def test_when_sqs_redrives_to_a_queue_that_is_gone_then_it_is_an_error(cloud: Cloud) -> None:
    await make_all(cloud)
    await cloud.create("elsewhere")
    arn = await cloud.arn("elsewhere")
    policy = {"deadLetterTargetArn": arn, "maxReceiveCount": 9}
    await set_attributes(cloud, "orders", RedrivePolicy=json.dumps(policy))
    if isinstance(cloud.transport, PaperAws):
        del cloud.transport.queues["elsewhere"]
    else:
        await cloud.sqs("delete_queue", "elsewhere")

    [(level, detail)] = await problems(cloud)

    assert level is Level.ERROR
    assert detail == f"queue 'orders' redrives to {arn}, which does not exist"


async def test_when_the_dead_letters_are_kept_too_briefly_then_that_is_found(cloud: Cloud) -> None:
    await make_all(cloud)
    await set_attributes(cloud, "dead", MessageRetentionPeriod="60")

    [(level, detail)] = await problems(cloud)

    assert level is Level.WARNING
    assert detail.startswith("dead-letter queue 'dead' keeps messages for 1m")


async def test_when_a_fifo_queue_is_examined_then_it_is_like_any_other(cloud: Cloud) -> None:
    """R34."""
    for name in ("orders.fifo", "dead.fifo", "odd"):
        await cloud.create(name)
    subscription = a_subscription("orders.fifo", dead_letter_queue="dead.fifo")

    assert await problems(cloud, subscription) == []


async def test_when_queues_are_named_by_url_or_arn_then_they_are_found(cloud: Cloud) -> None:
    await make_all(cloud)
    url = await cloud.urls.url_of("orders")
    subscription = a_subscription(url, dead_letter_queue=await cloud.arn("dead"))

    assert await problems(cloud, subscription) == []
    assert len(await found(cloud, subscription)) == 2


async def test_when_a_queue_named_by_its_url_is_gone_then_it_is_not_the_apps_to_make(
    cloud: Cloud,
) -> None:
    await make_all(cloud)
    url = (await cloud.urls.url_of("orders")).replace("/orders", "/gone")

    [(level, detail)] = await problems(cloud, a_subscription(url))

    assert level is Level.ERROR
    assert detail == f"queue {url!r} does not exist, and is not the app's to make"


async def test_when_two_subscriptions_share_queues_then_each_queue_is_asked_once(
    cloud: Cloud,
) -> None:
    await make_all(cloud)
    await cloud.create("bills")
    cloud.operations.clear()

    told = await found(cloud, a_subscription(), a_subscription("bills"))

    assert {each.subject for each in told} == {"subscription orders", "subscription bills"}
    assert cloud.operations.count("get_queue_attributes") == 4
    assert cloud.operations.count("delete_message_batch") == 2
    assert cloud.operations.count("send_message_batch") == 2


async def test_when_there_is_no_subscription_then_sqs_is_asked_whether_it_is_there(
    cloud: Cloud,
) -> None:
    assert await examine(cloud, cloud.urls, [], {}) == []

    assert cloud.operations == ["list_queues"]
