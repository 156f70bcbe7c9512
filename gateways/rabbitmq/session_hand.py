"""What a session has received and not settled, in the order of the queue. Pure.

| a message is | when                                | and then                                  |
|--------------|-------------------------------------|-------------------------------------------|
| here         | it came, or was given back          | returned by the next receive              |
| out          | it was returned                     | its receipt is valid                      |
| done         | it was acked, or its copy was moved | forgotten; its receipt is valid no longer |
"""

from __future__ import annotations

import attrs

from pump.ids import new_id
from pump.message import Delivery

from .wire import Parcel, decode, native_of


@attrs.define(eq=False)
class HeldMessage:
    """One of them."""

    parcel: Parcel
    tag: int
    """By which the channel knows it."""
    received_at_s: float
    attempt: int
    receipt: str = ""
    """Empty while it is here."""
    is_taken: bool = False
    """Whether a settlement of it is on its way."""


class SessionHand:
    """The messages of one session that are not settled."""

    def __init__(self) -> None:
        self._held: dict[int, HeldMessage] = {}
        self._out: dict[str, HeldMessage] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_ready(self) -> bool:
        """Whether there is something to return."""
        return len(self._out) < len(self._held)

    @property
    def oldest_s(self) -> float | None:
        """When the first of them came, None when there is none."""
        return min((each.received_at_s for each in self._held.values()), default=None)

    def add(self, message: HeldMessage) -> None:
        """The broker has delivered it, after all that are here."""
        self._held[message.tag] = message

    def take(self, max_count: int, *, queue: str, lease_expires_at_s: float) -> list[Delivery]:
        """The next ones to return."""
        here = [each for each in self._held.values() if not each.receipt][:max_count]
        return [self._returned(each, queue, lease_expires_at_s) for each in here]

    def find(self, delivery: Delivery) -> HeldMessage | None:
        """The message that was returned as this delivery, None when it is out no longer, or is
        being settled.
        """
        held = self._out.get(delivery.receipt)
        return None if held is None or held.is_taken else held

    def give_back(self, message: HeldMessage, *, is_counted: bool) -> None:
        """It is to be returned again, before those that came after it."""
        del self._out[message.receipt]
        message.receipt = ""
        message.attempt += is_counted

    def drop(self, message: HeldMessage) -> None:
        """It is done."""
        del self._held[message.tag]
        self._out.pop(message.receipt, None)

    def _returned(self, message: HeldMessage, queue: str, ends_at_s: float) -> Delivery:
        message.receipt = new_id()
        self._out[message.receipt] = message
        return Delivery(
            message=decode(message.parcel),
            queue=queue,
            receipt=message.receipt,
            attempt=message.attempt,
            lease_expires_at_s=ends_at_s,
            broker_id=message.parcel.stored_id,
            native=native_of(message.parcel),
        )
