"""The caretaker of SQS queues: what there is, and emptying it.

What runs on LocalStack runs through both SDKs (R34).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways._aws.sdk_transport import Polling, Reply, Request
from gateways._kit.queues import MAX_LOOKS
from pump.clock import SYSTEM_CLOCK
from pump.errors import AccessDenied, QueueNotFound, UnsupportedOperation

from .clouds import CLOUDS, Cloud, open_cloud
from .paper_aws import ACCOUNT, PaperAws, url_of


@pytest.fixture(params=CLOUDS)
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    async with open_cloud(request) as cloud:
        yield cloud


@pytest.fixture
def paper() -> PaperAws:
    return PaperAws()


async def test_when_listed_then_by_name_with_what_each_holds(cloud: Cloud) -> None:
    """R2."""
    for name in ("orders", "invoices", "dead.fifo"):
        await cloud.create(name)

    listed = await cloud.admin().queues()

    assert [stats.name for stats in listed] == ["dead.fifo", "invoices", "orders"]
    assert {(each.visible, each.in_flight, each.delayed) for each in listed} == {(0, 0, 0)}
    assert {each.oldest_age_s for each in listed} == {None}


async def test_when_there_are_no_queues_then_none_are_listed(cloud: Cloud) -> None:
    assert await cloud.admin().queues() == []


async def test_when_a_prefix_is_given_then_only_such_queues_are_listed(cloud: Cloud) -> None:
    for name in ("shop-orders", "shop-invoices", "other"):
        await cloud.create(name)

    listed = await cloud.admin(prefix="shop-").queues()

    assert [stats.name for stats in listed] == ["shop-invoices", "shop-orders"]


async def test_when_a_queue_is_deleted_while_listing_then_it_is_left_out(paper: PaperAws) -> None:
    cloud = Cloud(paper)
    await cloud.create("orders")
    paper.answers["list_queues"] = lambda request: {"QueueUrls": [url_of("gone"), url_of("orders")]}

    assert await cloud.names() == ["orders"]


async def test_when_many_queues_are_listed_then_few_are_asked_at_once(paper: PaperAws) -> None:
    """R54."""
    cloud = Crowd(paper)
    for number in range(3 * MAX_LOOKS):
        await cloud.create(f"orders-{number:02}")
    cloud.most = 0

    names = await cloud.names()

    assert names == [f"orders-{number:02}" for number in range(3 * MAX_LOOKS)]
    assert 1 < cloud.most <= MAX_LOOKS


async def test_when_listing_is_denied_then_the_error_is_ours_and_alone(paper: PaperAws) -> None:
    cloud = Cloud(paper)
    for name in ("orders", "invoices"):
        await cloud.create(name)

    def deny(request: Request) -> Reply:
        raise AccessDenied("orders", "sqs:GetQueueAttributes")

    paper.answers["get_queue_attributes"] = deny

    with pytest.raises(AccessDenied):
        await cloud.names()


async def test_when_peeked_at_then_sqs_cannot(paper: PaperAws) -> None:
    """R76."""
    with pytest.raises(UnsupportedOperation, match="attempt"):
        await Cloud(paper).admin().peek("orders")


async def test_when_purged_then_the_queue_is_empty_and_the_estimate_returned(cloud: Cloud) -> None:
    """R5."""
    await cloud.create("orders")
    if isinstance(cloud.transport, PaperAws):
        cloud.transport.queues["orders"].attributes["ApproximateNumberOfMessages"] = "2"
    else:
        for body in "AB":
            await cloud.sqs("send_message", "orders", MessageBody=body)

    count = await cloud.admin().purge("orders")

    assert count == 2
    [stats] = await cloud.admin().queues()
    assert stats.visible == 0


async def test_when_purging_a_missing_queue_then_it_is_named_as_given(cloud: Cloud) -> None:
    """R2."""
    for queue in ("missing", f"arn:aws:sqs:eu-west-1:{ACCOUNT}:missing"):
        with pytest.raises(QueueNotFound) as caught:
            await cloud.admin().purge(queue)
        assert caught.value.queue == queue

    assert await cloud.names() == []


class Crowd(Cloud):
    """Counts how many calls are under way at once."""

    most = 0
    _now = 0

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        self._now += 1
        self.most = max(self.most, self._now)
        await SYSTEM_CLOCK.sleep(0)
        self._now -= 1
        return await super().call(service, operation, request, target=target)
