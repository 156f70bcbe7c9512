"""Dispatch: one delivery, from bytes to outcome. The broadest `except` lives here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from ..clock import Clock
from ..decide import decide, exhausted, leaves
from ..errors import CorruptedMessage, MappingError
from ..headers import CORRUPTED
from ..mapping import Mapper
from ..message import Delivery, Message
from ..outcome import ACK, Outcome
from ..processor import ENDS_OF_THE_PROGRAM, CommandProcessor
from ..sealing import MAGIC, PAST_MAGIC, Sealing
from ..subscription import Subscription


class ProgramEnded(BaseException):
    """A handler ended the program: on its way to where `ending_the_program` raises it bare.

    Under its own name it would break off the event loop at every task that it passes, and
    nothing would hand messages back or close the gateway.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def ending_the_program() -> Iterator[None]:
    """Raise what a handler ended the program with, once all tasks inside have ended."""
    try:
        yield
    except (ProgramEnded, BaseExceptionGroup) as error:
        for each in leaves(error):
            if isinstance(each, ProgramEnded):
                raise each.error from None
        raise


@attrs.frozen(eq=False)
class Dispatch:
    """Decodes a message, runs its handlers and decides what becomes of it."""

    subscription: Subscription
    mapper: Mapper
    processor: CommandProcessor
    clock: Clock
    sealing: Sealing | None = None
    _max_attempts: float = attrs.field(init=False)

    @_max_attempts.default
    def _most(self) -> float:
        return self.subscription.attempt_limit

    async def __call__(
        self, delivery: Delivery, is_told_to_stop: Callable[[Delivery], bool]
    ) -> tuple[Outcome, BaseException | None]:
        """Return the outcome, and the error that led to it if one did.

        Never raises for the message's sake: whatever decoding or handling raises becomes an
        outcome. What ends the program passes through as `ProgramEnded`, and a cancellation when
        the delivery was told to stop. Any other one (the handler cancelled itself, or awaited a
        task that was cancelled) is its failure like every other.
        """
        if delivery.attempt > self._max_attempts:
            return exhausted(delivery.attempt, self._max_attempts), None
        try:
            message = delivery.message
            if CORRUPTED in message.headers:
                raise CorruptedMessage(message.type, message.headers[CORRUPTED])
            if self.sealing is not None:
                message = await self.sealing.unseal(delivery)
            elif PAST_MAGIC > message.body >= MAGIC and self.subscription.request is not Message:
                raise MappingError(
                    message.type, "its body is encrypted; give the app an Encryption with its key"
                )
            request = self.mapper.read(message, self.subscription)
            await self.processor.dispatch(request, delivery, self.subscription)
        except BaseException as error:  # broad: a handler can raise anything; see the docstring
            if not isinstance(error, Exception):
                _let_through(error, is_stopping=is_told_to_stop(delivery))
            return self._decided(error, delivery), error
        return ACK, None

    def _decided(self, error: BaseException, delivery: Delivery) -> Outcome:
        return decide(
            error,
            attempt=delivery.attempt,
            strategy=self.subscription.failure,
            chance=self.clock.chance(),
            quotes_errors=self.sealing is None,
        )


def _let_through(error: BaseException, *, is_stopping: bool) -> None:
    """Raise what is no failure of the message's: an end of the program, or of the task."""
    for each in leaves(error):
        if isinstance(each, ENDS_OF_THE_PROGRAM):
            raise ProgramEnded(each) from error
    if _is_closed():
        raise error
    if is_stopping:
        raise asyncio.CancelledError from error


def _is_closed() -> bool:
    """Whether no task runs this coroutine any more: then it must not wait again."""
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True
