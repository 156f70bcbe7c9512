"""The server seen through a plain boto3 client, which owes nothing to our gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from pump.clock import SYSTEM_CLOCK
from tests.brokers.aws_account import AwsAccount

Raw = Mapping[str, Any]
"""One of ReceiveMessage's Messages."""
PATIENCE_S = 60.0
"""Far more than any step takes, so that a busy machine fails no test."""


class PlainSqs:
    """Queues by name; every call blocks a thread of its own, never the loop."""

    def __init__(self, aws: AwsAccount) -> None:
        self.client = aws.client("sqs")
        self._urls: dict[str, str] = {}

    async def call(self, operation: str, queue: str, **request: Any) -> Any:
        """Perform an operation on a queue."""
        url = await self.url(queue)
        return await asyncio.to_thread(getattr(self.client, operation), QueueUrl=url, **request)

    async def url(self, queue: str) -> str:
        if queue not in self._urls:
            reply = await asyncio.to_thread(self.client.get_queue_url, QueueName=queue)
            self._urls[queue] = reply["QueueUrl"]
        return self._urls[queue]

    async def make(self, queue: str, **attributes: str) -> str:
        """Make a queue and return its ARN."""
        if queue.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        reply = await asyncio.to_thread(
            self.client.create_queue, QueueName=queue, Attributes=attributes
        )
        self._urls[queue] = reply["QueueUrl"]
        return str((await self.attributes(queue))["QueueArn"])

    async def delete(self, queue: str) -> None:
        await self.call("delete_queue", queue)

    async def attributes(self, queue: str) -> dict[str, str]:
        reply = await self.call("get_queue_attributes", queue, AttributeNames=["All"])
        return dict(reply["Attributes"])

    async def depth(self, queue: str) -> tuple[int, int, int]:
        """How many are visible, in flight and delayed; LocalStack's counts are exact."""
        found = await self.attributes(queue)
        return (
            int(found["ApproximateNumberOfMessages"]),
            int(found["ApproximateNumberOfMessagesNotVisible"]),
            int(found["ApproximateNumberOfMessagesDelayed"]),
        )

    async def until_empty(self, queue: str) -> None:
        """Return when nothing is in the queue, in flight neither."""
        async with asyncio.timeout(PATIENCE_S):
            while sum(await self.depth(queue)):
                await SYSTEM_CLOCK.sleep(0.2)

    async def send(self, queue: str, body: str, **request: Any) -> str:
        """Send as a stranger would, and return SQS's id."""
        if queue.endswith(".fifo"):
            request.setdefault("MessageGroupId", "g")
            request.setdefault("MessageDeduplicationId", body[:64].encode().hex())
        reply = await self.call("send_message", queue, MessageBody=body, **request)
        return str(reply["MessageId"])

    async def receive(self, queue: str, *, wait_s: int = 2, lease_s: int = 30) -> list[Raw]:
        """What one receive brings, ten at most."""
        reply = await self.call(
            "receive_message",
            queue,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=lease_s,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        )
        return list(reply.get("Messages", []))

    async def take(self, queue: str, count: int = 1) -> list[Raw]:
        """Receive and delete until there were `count`; fails when they do not come."""
        taken: list[Raw] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(taken) < count:
                taken += await self.take_some(queue)
        assert len(taken) == count, f"{len(taken)} in {queue}, not {count}"
        return taken

    async def take_all(self, queue: str) -> list[Raw]:
        """Receive and delete until the queue is empty."""
        taken: list[Raw] = []
        while batch := await self.take_some(queue, wait_s=0):
            taken += batch
        return taken

    async def take_some(self, queue: str, *, wait_s: int = 2) -> list[Raw]:
        batch = await self.receive(queue, wait_s=wait_s)
        if batch:
            entries = [
                {"Id": str(position), "ReceiptHandle": each["ReceiptHandle"]}
                for position, each in enumerate(batch)
            ]
            await self.call("delete_message_batch", queue, Entries=entries)
        return batch

    def close(self) -> None:
        self.client.close()


def packed(raw: Raw) -> dict[str, Any]:
    """What travels beside the body, as anybody can read it."""
    content: dict[str, Any] = json.loads(raw["MessageAttributes"]["pump"]["StringValue"])
    return content


def headers_of(raw: Raw) -> dict[str, str]:
    """The headers of a message of ours."""
    headers: dict[str, str] = packed(raw).get("h", {})
    return headers
