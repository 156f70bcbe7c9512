"""A queue of the server under load, as the measurer handles it: outside of the measured time."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from .calls import Calls
from .wire import Wire

_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


def new_queue(endpoint: str) -> Calls:
    """An empty queue that nobody polls: some servers give messages to pollers that hung up."""
    reply = ask(Calls(endpoint), "CreateQueue", QueueName=uuid.uuid4().hex)
    return Calls(endpoint, reply["QueueUrl"])


def pending_in(calls: Calls) -> int:
    """How many messages the queue has, wherever they are."""
    reply = ask(calls, "GetQueueAttributes", AttributeNames=list(_COUNTS))
    return sum(int(reply["Attributes"][name]) for name in _COUNTS)


def ask(calls: Calls, operation: str, **request: Any) -> Any:
    """One call over a connection of its own."""

    async def once() -> bytes:
        wire = Wire(calls.endpoint)
        try:
            return await wire.call(calls.make(operation, **request))
        finally:
            wire.close()

    return json.loads(asyncio.run(once()))
