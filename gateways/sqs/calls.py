"""Calls: the operations on one queue, addressed and retried where its URL was out of date."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from pump.errors import QueueNotFound
from pump.message import Delivery

from .._aws.transport import Polling, Reply, Transport
from .address import QueueUrls
from .limits import MAX_VISIBILITY_S


class QueueCalls:
    """Speaks to one queue by the name it was given. Its URL is found at the first call."""

    def __init__(self, transport: Transport, urls: QueueUrls, queue: str) -> None:
        self.queue = queue
        self._transport = transport
        self._urls = urls

    async def call(
        self, operation: str, request: dict[str, Any], *, polling: Polling | None = None
    ) -> Reply:
        """Perform one operation; a queue that is gone is looked up anew the next time."""
        request["QueueUrl"] = await self._urls.url_of(self.queue)
        try:
            return await self._transport.call(
                "sqs", operation, request, target=self.queue, polling=polling
            )
        except QueueNotFound:
            self._urls.forget(self.queue)
            raise


# Requests: what is asked of SQS, spelled once. Pure; the queue's URL is added by the call.

_SYSTEM_ATTRIBUTES = [
    "ApproximateReceiveCount",
    "SentTimestamp",
    "MessageGroupId",
    "MessageDeduplicationId",
    "AWSTraceHeader",
]


def receive_request(*, max_count: int, wait_s: int, lease_s: int) -> dict[str, Any]:
    """Up to `max_count` messages, hidden from others for `lease_s`."""
    return {
        "MaxNumberOfMessages": max_count,
        "WaitTimeSeconds": wait_s,
        "VisibilityTimeout": lease_s,
        "MessageAttributeNames": ["All"],
        "MessageSystemAttributeNames": _SYSTEM_ATTRIBUTES,
    }


def delete_entries(deliveries: Sequence[Delivery]) -> list[dict[str, object]]:
    """Remove these for good; an entry's id is its position."""
    return [
        {"Id": str(position), "ReceiptHandle": delivery.receipt}
        for position, delivery in enumerate(deliveries)
    ]


def hide_entries(deliveries: Sequence[Delivery], seconds: Sequence[int]) -> list[dict[str, object]]:
    """Hide each for so many seconds from now; an entry's id is its position."""
    return [
        {"Id": str(position), "ReceiptHandle": delivery.receipt, "VisibilityTimeout": hide_s}
        for position, (delivery, hide_s) in enumerate(zip(deliveries, seconds, strict=True))
    ]


def whole_seconds(seconds: float, *, most: int = MAX_VISIBILITY_S) -> int:
    """As SQS counts: never shorter than asked for, within its limit."""
    return min(most, max(0, ceil(seconds)))
