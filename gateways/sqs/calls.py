"""Calls: the operations on one queue, addressed and retried where its URL was out of date."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Final

from pump.capabilities import Capabilities
from pump.errors import QueueNotFound
from pump.message import Delivery

from .._aws.transport import Polling, Reply, Transport
from .address import QueueUrls

# Limits of SQS, each a figure of its documentation, and what follows for the pump.

MAX_BATCH: Final = 10
"""Entries of one batch, and messages of one receive."""
MAX_BYTES: Final = 1_048_576
"""Body and attributes of one message, and of one batch together."""
MAX_ATTRIBUTES: Final = 10
"""Of one message."""
MAX_DELAY_S: Final = 900
MAX_VISIBILITY_S: Final = 43_200
"""Twelve hours, counted from the receive: extensions do not start it anew."""
MAX_LONG_POLL_S: Final = 20

SQS = Capabilities(
    gateway="sqs",
    # Order, groups, sessions and de-duplication are those of queues whose name ends in `.fifo`.
    has_strict_order=True,
    has_groups=True,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=False,
    has_native_redrive=True,
    has_purge=True,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_delay_s=MAX_DELAY_S,
    max_defer_s=MAX_VISIBILITY_S,
    max_lease_s=MAX_VISIBILITY_S,
    max_body_bytes=MAX_BYTES,
    receive_batch=MAX_BATCH,
    settle_batch=MAX_BATCH,
    # A request costs a hundred times what a message costs: a batch is worth a short wait.
    settle_linger_s=0.005,
    max_settle_calls=8,
    max_pollers=8,
    # Made of FIFO groups: SQS gives out none of a group while one of it is in flight.
    emulated=frozenset({"has_sessions"}),
)


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
