"""Sealing: what the core knows of payload encryption. `pump.crypto` does it.

A body that starts with `MAGIC` is sealed. Messages stay sealed in hand, in every queue and in the
spill store; they are opened on the way to the handler, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from .events import Event
from .message import Delivery, Message
from .observability.counters import Counters

MAGIC: Final = b"QRE1"
PAST_MAGIC: Final = b"QRE2"
"""`PAST_MAGIC > body >= MAGIC` holds for what starts with `MAGIC`. Every message is asked, and
`startswith` takes three times as long."""


class Sealing(Protocol):
    """Seals what is sent and opens what arrives."""

    async def start(self, counters: Counters, emit: Callable[[Event], None] | None) -> None:
        """The app opens: have the keys at hand. Raises `ConfigurationError` when it cannot."""

    async def aclose(self) -> None:
        """The app has closed: let go of the keys."""

    async def seal(self, message: Message, queue: str, *, is_ready_made: bool = False) -> Message:
        """The message as it travels. Raises `CryptoError`.

        A request that was encoded just now is always sealed, whatever its body starts with. Only
        a message that came ready-made may be sealed already, because it is sent on; then it stays
        as it is.
        """

    async def unseal(self, delivery: Delivery) -> Message:
        """The message as it was sent. Raises `CryptoError` for one that is not acceptable;
        `KeyUnavailable` when its key cannot be had at the moment.
        """

    async def routing(self, delivery: Delivery) -> None:
        """A copy is about to be routed away: whoever reads it there must be able to open it, even
        before the original is settled. Never raises.
        """

    def settled(self, delivery: Delivery, *, is_handled: bool) -> None:
        """The broker confirmed that the message is gone: handled, or else routed away."""
