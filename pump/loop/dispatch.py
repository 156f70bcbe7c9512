"""Dispatch: one delivery, from bytes to outcome. The only broad `except Exception` lives here."""

from __future__ import annotations

import asyncio

import attrs

from ..clock import Clock
from ..decide import decide
from ..errors import MappingError
from ..mapping import Mapper
from ..message import Delivery, Message
from ..outcome import ACK, Outcome
from ..processor import CommandProcessor
from ..sealing import MAGIC, PAST_MAGIC, Sealing
from ..subscription import Subscription


@attrs.frozen(eq=False)
class Dispatch:
    """Decodes a message, runs its handlers and decides what becomes of it."""

    subscription: Subscription
    mapper: Mapper
    processor: CommandProcessor
    clock: Clock
    sealing: Sealing | None = None

    async def __call__(self, delivery: Delivery) -> tuple[Outcome, BaseException | None]:
        """Return the outcome, and the error that led to it if one did.

        Never raises for the message's sake: whatever decoding or handling raises becomes an
        outcome. A cancellation of this task passes through; one that a handler met elsewhere
        (it awaited a task that was cancelled) is its failure like any other.
        """
        try:
            message = delivery.message
            if self.sealing is not None:
                message = await self.sealing.unseal(delivery)
            elif PAST_MAGIC > message.body >= MAGIC and self.subscription.request is not Message:
                raise MappingError(
                    message.type, "its body is encrypted; give the app an Encryption with its key"
                )
            request = self.mapper.read(message, self.subscription)
            await self.processor.dispatch(request, delivery, self.subscription)
        except (Exception, asyncio.CancelledError, BaseExceptionGroup) as error:
            if not isinstance(error, Exception) and _is_cancelled():
                raise
            outcome = decide(
                error,
                attempt=delivery.attempt,
                strategy=self.subscription.failure,
                chance=self.clock.chance(),
                quotes_errors=self.sealing is None,
            )
            return outcome, error
        return ACK, None


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
