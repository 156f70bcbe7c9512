"""aioboto3 works on `pump local` unchanged (R44)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aioboto3
import pytest

from tests.brokers.aws_account import AwsAccount

pytestmark = pytest.mark.broker


def session(account: AwsAccount) -> aioboto3.Session:
    return aioboto3.Session(
        aws_access_key_id=account.access_key_id,
        aws_secret_access_key=account.secret_access_key,
        region_name=account.region,
    )


@pytest.fixture
async def sqs(local_aws: AwsAccount) -> AsyncIterator[Any]:
    async with session(local_aws).client("sqs", endpoint_url=local_aws.endpoint_url) as client:
        yield client


async def test_when_a_receive_waits_then_it_wakes_with_the_message(sqs: Any) -> None:
    queue = (await sqs.create_queue(QueueName="orders"))["QueueUrl"]

    waiting = asyncio.create_task(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20))
    sent = await sqs.send_message(QueueUrl=queue, MessageBody="hello")
    [received] = (await waiting)["Messages"]
    await sqs.delete_message(QueueUrl=queue, ReceiptHandle=received["ReceiptHandle"])

    assert (received["MessageId"], received["Body"]) == (sent["MessageId"], "hello")
    left = await sqs.receive_message(QueueUrl=queue)
    assert left.get("Messages", []) == []


async def test_when_many_send_at_once_then_nothing_is_lost_or_doubled(sqs: Any) -> None:
    queue = (await sqs.create_queue(QueueName="orders"))["QueueUrl"]
    batches = [
        [{"Id": str(n), "MessageBody": f"{batch}-{n}"} for n in range(10)] for batch in range(20)
    ]

    await asyncio.gather(
        *(sqs.send_message_batch(QueueUrl=queue, Entries=batch) for batch in batches)
    )
    answers = await asyncio.gather(
        *(sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10) for _ in range(20))
    )

    bodies = [each["Body"] for answer in answers for each in answer["Messages"]]
    assert sorted(bodies) == sorted(entry["MessageBody"] for batch in batches for entry in batch)


async def test_when_pages_are_walked_then_every_queue_is_seen(sqs: Any) -> None:
    made = [(await sqs.create_queue(QueueName=f"q-{n}"))["QueueUrl"] for n in range(5)]

    pages = sqs.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 2})

    assert sorted([url async for page in pages for url in page["QueueUrls"]]) == sorted(made)


async def test_when_resources_are_used_then_queues_and_messages_are_objects(
    local_aws: AwsAccount,
) -> None:
    async with session(local_aws).resource("sqs", endpoint_url=local_aws.endpoint_url) as resource:
        queue = await resource.create_queue(QueueName="orders")

        await queue.send_message(MessageBody="one")
        [message] = await queue.receive_messages(WaitTimeSeconds=1)
        body = await message.body
        await message.delete()

    assert body == "one"
