"""Calls: the operations on one queue, addressed and retried where its URL was out of date."""

from __future__ import annotations

from typing import Any

from pump.errors import QueueNotFound

from .._aws.transport import Polling, Reply, Transport
from .address import QueueUrls


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
