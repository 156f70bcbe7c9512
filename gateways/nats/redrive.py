"""Redrive: what was delivered too often moves to the dead-letter queue, by the gateway.

The server counts the deliveries; a consumer that receives a message beyond the limit, or gives one
back at the limit, stores a copy in the dead-letter queue and then removes the original. The copy's
de-duplication id is the original's place in its stream, and its own id in case a stream of that
name is not the one that was, so that two that do it at once, or one that died in between, leave one
dead letter (T10).
"""

from __future__ import annotations

import attrs

from pump.clock import Clock
from pump.errors import GatewayError, MessageTooLarge, QueueNotFound
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger

from .._kit.redrive import dead_letter
from .connection import ApiError, NatsConnection, fault_of, read_answer
from .link import NoResponders, ServerRequest
from .names import QueueNames
from .receipts import subject_of
from .settling import TERM
from .wire import MESSAGE_ID, encode, legal_id, size_of

_log = get_logger("gateways.nats")
_ID_BYTES = 256
"""More than the header of the copy's id takes."""


@attrs.frozen
class Limit:
    """After how many deliveries a message moves, and where."""

    count: int
    target: str


class Redrive:
    """Moves what one queue gave up on."""

    def __init__(self, connection: NatsConnection, queue: str, *, clock: Clock) -> None:
        self._connection = connection
        self._queue = queue
        self._stream = QueueNames.of(queue).stream
        self._clock = clock

    async def move(self, delivery: Delivery, limit: Limit, *, attempt: int) -> bool:
        """Whether it is in the dead-letter queue, and gone from its own.

        One that cannot be moved stays leased, to be met again when its lease ends.
        """
        target = QueueNames.of(limit.target)
        dead = dead_letter(
            delivery.message,
            queue=self._queue,
            attempt=attempt,
            wall_s=self._clock.time_s(),
            native=delivery.native,
        )
        largest = self._connection.max_payload
        marks = encode(dead, stream=target.stream, max_bytes=largest - _ID_BYTES)
        marks[MESSAGE_ID] = legal_id(f"{self._stream}:{delivery.broker_id}:{dead.id}")
        copy = ServerRequest(subject=target.subject(dead.group), payload=dead.body, headers=marks)
        try:
            size = size_of(marks, dead.body)
            if size > largest:
                # The server would close the connection for it, each time it is met.
                raise MessageTooLarge(limit.target, size, largest)
            await self._store(copy, limit.target)
            subject = subject_of(delivery.receipt)
            answer = await self._connection.request(ServerRequest(subject=subject, payload=TERM))
            if isinstance(answer, GatewayError):
                raise answer
        except GatewayError as error:
            _log.warning(
                vocabulary.ROUTING_FAILED,
                queue=limit.target,
                message_id=delivery.message.id,
                error=repr(error),
            )
            return False
        return True

    async def _store(self, copy: ServerRequest, target: str) -> None:
        try:
            read_answer(await self._connection.request(copy))
        except NoResponders as error:
            raise QueueNotFound(target) from error
        except ApiError as error:
            raise fault_of(error, target) from error
