"""Surveys of real queues: the local gateway, and SQS through `pump local` (R78)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateways.local import LocalGateway
from gateways.sqs import SqsGateway, TransportKind
from pump.errors import ConnectionFailed, QueueNotFound
from pump.message import Message
from pump.ports import Gateway
from pump.queue_browser import Seen, browse
from pump.subscription import MakeChannels, QueueSpec, Subscription
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings


@pytest.fixture
async def sqs(local_aws: AwsAccount) -> AsyncIterator[SqsGateway]:
    gateway = SqsGateway(sqs_settings(local_aws, TransportKind.AIOBOTO3))
    await gateway.open()
    yield gateway
    await gateway.aclose()


async def made(gateway: Gateway, queue: str) -> str:
    await gateway.admin().ensure(QueueSpec(name=queue), MakeChannels.CREATE)
    return queue


async def seen_in(gateway: Gateway, queue: str, max_count: int | None = None) -> list[Seen]:
    seen: list[Seen] = []
    async with browse(gateway, queue, max_count=max_count) as parts:
        async for part in parts:
            seen += part
    return seen


async def receive_all(gateway: Gateway, queue: str, count: int) -> list[str]:
    port = gateway.consumer(Subscription(queue=queue, request=Message))
    received: list[str] = []
    while len(received) < count:
        deliveries = await port.receive(max_count=10, wait_s=1)
        assert deliveries, f"only {len(received)} of {count} came"
        received += [each.message.id for each in deliveries]
    await port.aclose()
    return received


async def test_when_a_local_queue_is_surveyed_then_it_stays_as_it_was(tmp_path: Path) -> None:
    """R78: the local gateway can be asked, so no attempt is counted."""
    gateway = LocalGateway(tmp_path)
    await gateway.open()
    queue = await made(gateway, "orders")
    sent = await gateway.producer(queue).send([Message(body=b"%d" % at) for at in range(1_500)])

    seen = await seen_in(gateway, queue)

    assert [each.message.id for each in seen] == list(sent)
    assert sorted(await receive_all(gateway, queue, 1_500)) == sorted(sent)
    await gateway.aclose()


@pytest.mark.broker
async def test_when_an_sqs_queue_is_surveyed_then_all_is_receivable_at_once(
    sqs: SqsGateway,
) -> None:
    """R78: every message is seen once, and comes again long before its lease would have ended."""
    queue = await made(sqs, "orders")
    sent = await sqs.producer(queue).send([Message(body=b"%d" % at) for at in range(137)])

    seen = await seen_in(sqs, queue)

    assert sorted(each.message.id for each in seen) == sorted(sent)
    assert {each.attempt for each in seen} == {1}
    assert len({each.broker_id for each in seen}) == 137
    assert sorted(await receive_all(sqs, queue, 137)) == sorted(sent)


@pytest.mark.broker
async def test_when_a_count_is_given_on_sqs_then_no_more_is_seen(sqs: SqsGateway) -> None:
    """R78: a survey of a few messages touches a few."""
    queue = await made(sqs, "orders")
    await sqs.producer(queue).send([Message(body=b"x") for _ in range(40)])

    assert len(await seen_in(sqs, queue, max_count=15)) == 15
    assert len(await receive_all(sqs, queue, 40)) == 40


@pytest.mark.broker
async def test_when_an_sqs_fifo_queue_is_surveyed_then_its_order_survives(sqs: SqsGateway) -> None:
    """R78: at least the first of each group is seen, and every group keeps its order."""
    queue = await made(sqs, "orders.fifo")
    messages = [
        Message(body=b"x", id=f"{group}{at}", group=group) for at in range(4) for group in "ab"
    ]
    await sqs.producer(queue).send(messages)

    seen = {each.message.id for each in await seen_in(sqs, queue)}

    assert {"a0", "b0"} <= seen
    received = await receive_all(sqs, queue, 8)
    assert [each for each in received if each[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [each for each in received if each[0] == "b"] == ["b0", "b1", "b2", "b3"]


@pytest.mark.broker
async def test_when_the_sqs_queue_is_not_there_then_the_error_names_it(sqs: SqsGateway) -> None:
    """R78: a queue that is not there is not an empty one."""
    with pytest.raises(QueueNotFound, match="nowhere"):
        await seen_in(sqs, "nowhere")


@pytest.mark.broker
async def test_when_nobody_serves_sqs_then_the_error_says_so(local_aws: AwsAccount) -> None:
    """R78: a broker that is away is an error in bounded time."""
    nobody = local_aws.through("http://127.0.0.1:9")
    gateway = SqsGateway(sqs_settings(nobody, TransportKind.AIOBOTO3))
    await gateway.open()

    with pytest.raises(ConnectionFailed):
        await seen_in(gateway, "orders")
    await gateway.aclose()
