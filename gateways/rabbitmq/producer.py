"""The producer port of one queue."""

from __future__ import annotations

from collections.abc import Sequence

from pump.errors import MessageTooLarge, SendFailed, UnsupportedOperation
from pump.message import Message

from .limits import MAX_DELAY_S
from .topology import Topology, first_error
from .wire import encode


class RabbitMQProducer:
    """Sends to one queue, in the order given; all of a send wait for their confirms together."""

    def __init__(self, topology: Topology, queue: str, *, max_body_bytes: int) -> None:
        self._topology = topology
        self._queue = queue
        self._max_body_bytes = max_body_bytes

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """A delay is met by a stay in a queue beside this one, by a sixteenth longer at most.

        `ConnectionFailed` leaves open whether the broker has them.
        """
        if delay_s > MAX_DELAY_S:
            raise UnsupportedOperation(
                "amqp", f"a delay of {delay_s:g} s", f"{MAX_DELAY_S:g} s (30 days) is the most"
            )
        for message in messages:
            if len(message.body) > self._max_body_bytes:
                raise MessageTooLarge(self._queue, len(message.body), self._max_body_bytes)
        fates = await self._topology.publish(
            self._queue, [encode(message) for message in messages], delay_s=delay_s
        )
        error = first_error(fates)
        if error is None:
            return [message.id for message in messages]
        if all(type(fate) is type(error) for fate in fates):
            raise error
        failures = zip(messages, fates, strict=True)
        raise SendFailed(
            self._queue, tuple((each.id, fate) for each, fate in failures if fate is not None)
        )

    async def aclose(self) -> None:
        """Nothing to let go of: channels are the gateway's."""
