"""The consumer port of a queue with sessions: there is nothing to receive but in sessions."""

from __future__ import annotations

from collections.abc import Sequence

from pump.errors import InvalidReceipt, UnsupportedOperation
from pump.message import Delivery
from pump.outcome import Refusal, Settlement


class SessionsOnly:
    """Receives nothing, and says why: whoever received beside the sorter would break the order."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        raise UnsupportedOperation(
            "amqp",
            f"receiving from queue {self._queue!r} without a session",
            "its messages are sorted into sessions; use Consumer.accept_session, or make the "
            "queue without options={'sessions': True}",
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return [self._refusal(each.delivery) for each in settlements]

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return [self._refusal(each) for each in deliveries]

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _refusal(self, delivery: Delivery) -> Refusal:
        return Refusal(delivery, InvalidReceipt(self._queue, delivery.receipt))
