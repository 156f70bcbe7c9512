"""Dispatch: one delivery, from bytes to outcome. The only broad `except Exception` lives here."""

from __future__ import annotations

import attrs

from ..clock import Clock
from ..decide import decide
from ..mapping import Mapper
from ..message import Delivery
from ..outcome import ACK, Outcome
from ..processor import CommandProcessor
from ..subscription import Subscription


@attrs.frozen(eq=False)
class Dispatch:
    """Decodes a message, runs its handlers and decides what becomes of it."""

    subscription: Subscription
    mapper: Mapper
    processor: CommandProcessor
    clock: Clock

    async def __call__(self, delivery: Delivery) -> tuple[Outcome, Exception | None]:
        """Return the outcome, and the error that led to it if one did.

        Never raises for the message's sake: whatever decoding or handling raises becomes an
        outcome. A cancellation passes through.
        """
        try:
            request = self.mapper.read(delivery.message, self.subscription)
            await self.processor.dispatch(request, delivery, self.subscription)
        except Exception as error:
            outcome = decide(
                error,
                attempt=delivery.attempt,
                strategy=self.subscription.failure,
                chance=self.clock.chance(),
            )
            return outcome, error
        return ACK, None
