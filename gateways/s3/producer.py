"""The producer for one queue in objects."""

from __future__ import annotations

from collections.abc import Sequence

from pump.errors import MessageTooLarge
from pump.message import Message

from .limits import MAX_BODY_BYTES
from .queues import Queues


class S3Producer:
    """Sends to one queue; sends that come together are written together."""

    def __init__(self, queues: Queues, queue: str) -> None:
        self._queues = queues
        self._queue = queue

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """Nothing is sent when one of them is too large (`MessageTooLarge`)."""
        for message in messages:
            if len(message.body) > MAX_BODY_BYTES:
                raise MessageTooLarge(self._queue, len(message.body), MAX_BODY_BYTES)
        return await (await self._queues.of(self._queue)).send(messages, delay_s=delay_s)

    async def aclose(self) -> None:
        """Nothing to let go of: the queue is the gateway's."""
