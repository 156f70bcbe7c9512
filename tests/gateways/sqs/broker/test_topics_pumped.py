"""From an SNS topic through a queue into a handler, in SNS's envelope and without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateways.sqs.wire import ATTRIBUTE, encode
from pump import headers
from pump.outcome import RejectMessage
from pump.testing.builders import a_message

from .bench import ONE_TRANSPORT, Bench, Job, Shop, raising
from .plain_sqs import headers_of, packed

pytestmark = [pytest.mark.broker, ONE_TRANSPORT]
RAW = pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "wrapped"])


async def publish(bench: Bench, suffix: str, body: str, **attributes: str) -> str:
    """Publish as a stranger would, to the topic that the subscription has made."""
    sns = bench.aws.client("sns")
    bench.stack.callback(sns.close)
    request: dict[str, Any] = {
        "TopicArn": f"arn:aws:sns:{bench.aws.region}:{bench.aws.account_id}:events{suffix}",
        "Message": body,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        },
    }
    if suffix:
        request |= {"MessageGroupId": "g-1", "MessageDeduplicationId": "d-1"}
    reply = await asyncio.to_thread(sns.publish, **request)
    return str(reply["MessageId"])


def subscribed(bench: Bench, suffix: str, *args: Any, is_raw: bool, **options: Any) -> Shop:
    return bench.shop(
        *args,
        queue=f"jobs{suffix}",
        dead_letter_queue=f"dead{suffix}",
        options={"topic": f"events{suffix}", "raw_delivery": is_raw, **options},
    )


@RAW
async def test_when_a_topic_is_published_to_then_the_handler_of_the_queue_gets_the_message(
    bench: Bench, suffix: str, is_raw: bool
) -> None:
    """T11: the envelope is taken off."""
    seen: list[str] = []

    async def handle(job: Job) -> None:
        seen.append(job.task)

    shop = subscribed(bench, suffix, handle, is_raw=is_raw)
    async with shop.working():
        await publish(bench, suffix, '{"task": "published"}', messageType="Job")
        await shop.diary.until_settled(1)

    assert seen == ["published"]
    assert shop.diary.statuses == ["processed"]


@RAW
async def test_when_a_published_message_is_rejected_then_body_and_attributes_are_in_the_dead_letter(
    bench: Bench, suffix: str, is_raw: bool
) -> None:
    """R25, R28."""
    shop = subscribed(bench, suffix, raising(RejectMessage("no")), is_raw=is_raw)
    async with shop.working():
        sns_id = await publish(bench, suffix, '{"task": "x"}', tenant="north")
        await shop.diary.until_settled(1)

    [copy] = await bench.plain.take(f"dead{suffix}")
    assert copy["Body"] == '{"task": "x"}'
    said = headers_of(copy)
    assert (said["tenant"], said[headers.REJECTION_DETAIL]) == ("north", "no")
    if not is_raw:
        assert packed(copy)["id"] == sns_id == said["snsMessageId"]
        assert said["snsTopicArn"].endswith(f":events{suffix}")


@RAW
async def test_when_a_message_of_ours_is_published_then_it_is_ours_at_the_other_end(
    bench: Bench, is_raw: bool
) -> None:
    """R1: the packed attribute survives the topic."""
    sent = a_message('{"task": "ours"}', type="Job", correlation_id="c-1", headers={"a": "ü"})
    shop = subscribed(bench, "", is_raw=is_raw)
    async with shop.by_hand() as consumer:
        entry = encode(sent, is_fifo=False)
        await publish(bench, "", entry.body, **{ATTRIBUTE: entry.attribute})
        [delivery] = await consumer.receive()
        await consumer.ack(delivery)

    assert delivery.message == sent


@RAW
async def test_when_a_filter_is_asked_for_then_only_what_passes_it_arrives(
    bench: Bench, is_raw: bool
) -> None:
    """The topic's messages that are not asked for never reach the queue."""
    seen: list[str] = []

    async def handle(job: Job) -> None:
        seen.append(job.task)

    shop = subscribed(bench, "", handle, is_raw=is_raw, filter_policy={"tenant": ["north"]})
    async with shop.working():
        await publish(bench, "", '{"task": "south"}', tenant="south")
        await publish(bench, "", '{"task": "north"}', tenant="north")
        await shop.diary.until_settled(1)

    assert seen == ["north"]
    assert await bench.plain.depth("jobs") == (0, 0, 0)
