"""Processing: one delivery, from bytes to its result: handled, decided and, if rejected, routed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import attrs

from ..clock import Clock
from ..decide import decide, describe, exhausted
from ..errors import CorruptedMessage, MappingError, examined, leaves
from ..events import OutcomeEvent, Status
from ..headers import CORRUPTED
from ..mapping import Mapper
from ..message import Delivery, Message
from ..observability.in_hand import Trace, active_trace
from ..observability.telemetry import Telemetry
from ..outcome import (
    ACK,
    INVALID_REASONS,
    Ack,
    Action,
    Defer,
    DeferMessage,
    Fate,
    InvalidMessage,
    Outcome,
    Reject,
    RejectionReason,
    RejectMessage,
    Settlement,
    Signal,
)
from ..ports import MAGIC, PAST_MAGIC, PayloadEncryption
from ..processor import ENDS_OF_THE_PROGRAM, CommandProcessor
from ..rejection import RejectionRouter
from ..subscription import Subscription

if TYPE_CHECKING:
    from ..rejection import Routed


class Orders(Protocol):
    """What a delivery's worker was told while it ran: `Workers` has it."""

    def is_recalled(self, delivery: Delivery) -> bool:
        """Whether this delivery is no longer ours."""

    def is_told_to_stop(self, delivery: Delivery) -> bool:
        """Whether it was recalled, or everything is to end."""

    @property
    def is_dismissed(self) -> bool:
        """Whether everything is to end."""

    async def shed_strays(self) -> None:
        """Undo cancellations that nothing but the handler itself asked for."""


@attrs.frozen(eq=False)
class DeliveryProcessor:
    """Has a delivery handled, and routes it away when it is rejected. Settling is the caller's."""

    dispatch: Dispatch
    router: RejectionRouter
    max_defer_s: float | None
    clock: Clock
    telemetry: Telemetry | None = None
    hold: Callable[[Delivery], Awaitable[bool]] | None = None
    """Whether the message is ours, asked before it is routed; None where nothing can be asked."""

    async def __call__(self, delivery: Delivery, orders: Orders) -> DeliveryResult | None:
        """Return how it ended; None when it was recalled, for it is no longer ours to judge.

        Never raises for the message's sake. A cancellation from outside passes through, and so
        does what ends the program. None also when a cancellation that a handler left behind
        met the routing: the copy may or may not have been sent, and the message comes again.
        """
        started_s = self.clock.now_s()
        trace: Trace | None = None
        try:
            if self.telemetry is None:
                outcome, error = await self.dispatch(delivery, orders.is_told_to_stop)
            else:
                outcome, error, trace = await self._dispatch_watched(
                    delivery, self.telemetry, orders
                )
            run_s = self.clock.now_s() - started_s
            if orders.is_recalled(delivery):
                return None  # No longer ours to route.
            if outcome is ACK:
                return DeliveryResult(delivery, ACK, ACK, run_s, None, None, trace)
            if not isinstance(outcome, Reject):
                action = self._within_reach(outcome)
                return DeliveryResult(delivery, action, action, run_s, None, error, trace)
            await orders.shed_strays()
            if self.hold is not None and not await self.hold(delivery):
                return None  # Lost while it was handled: a copy would be one too many.
            routed = await self.router.route(delivery, outcome.reason, outcome.detail)
        except asyncio.CancelledError:
            if orders.is_dismissed and not orders.is_recalled(delivery):
                raise
            return None
        if orders.is_recalled(delivery):
            return None  # Told to stop: whatever it says now is not to be relied on.
        where, fate = routed.destination, routed.fate
        return DeliveryResult(delivery, routed.action, outcome, run_s, where, error, trace, fate)

    async def _dispatch_watched(
        self, delivery: Delivery, telemetry: Telemetry, orders: Orders
    ) -> tuple[Outcome, BaseException | None, Trace | None]:
        with telemetry.processing(self.dispatch.subscription, delivery) as processing:
            trace = active_trace()
            outcome, error = await self.dispatch(delivery, orders.is_told_to_stop)
            processing.ended(outcome, error)
        return outcome, error, trace

    def _within_reach(self, action: Action) -> Action:
        if isinstance(action, Defer) and self.max_defer_s is not None:
            return Defer(min(action.delay_s, self.max_defer_s))
        return action


# Dispatch: one delivery, from bytes to outcome. The broadest `except` lives here.


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
    encryption: PayloadEncryption | None = None
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
            if self.encryption is not None:
                message = await self.encryption.decrypt(delivery)
            elif PAST_MAGIC > message.body >= MAGIC and self.subscription.request is not Message:
                raise MappingError(
                    message.type, "its body is encrypted; give the app an Encryption with its key"
                )
            request = self.mapper.read(message, self.subscription)
            await self.processor.dispatch(request, delivery, self.subscription)
        except BaseException as raised:  # broad: a handler can raise anything; see the docstring
            if not issubclass(type(raised), Exception):
                _let_through(raised, is_stopping=is_told_to_stop(delivery))
            error = _examined(raised)
            return self._decided(error, delivery), error
        return ACK, None

    def _decided(self, error: BaseException, delivery: Delivery) -> Outcome:
        return decide(
            error,
            attempt=delivery.attempt,
            strategy=self.subscription.failure,
            chance=self.clock.chance(),
            quotes_errors=self.encryption is None,
        )


def _examined(raised: BaseException) -> BaseException:
    try:
        return examined(raised)
    except ENDS_OF_THE_PROGRAM as end:  # Its `__str__` wants it, or Ctrl-C came just then.
        raise ProgramEnded(end) from None


def _let_through(error: BaseException, *, is_stopping: bool) -> None:
    """Raise what is no failure of the message's: an end of the program, or of the task."""
    for each in leaves(error):
        if issubclass(type(each), ENDS_OF_THE_PROGRAM):
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


# Delivery result: how a delivery ended, on its way through the settler to the observers.


class DeliveryResult(Settlement, frozen=True, eq=False, weakref=True):
    """A settlement, with what observers and the log want to know of it."""

    outcome: Outcome
    run_s: float = 0.0
    destination: str | None = None
    error: BaseException | None = None
    trace: Trace | None = None
    """The span in which it was handled, where one was active."""
    fate: Fate | None = None
    """What became of it where it was rejected."""


def result_by_hand(
    delivery: Delivery,
    action: Action,
    outcome: Outcome,
    *,
    run_s: float,
    routed: Routed | None = None,
) -> DeliveryResult:
    """The result of a delivery that was settled by hand: reported as if a handler had returned, or
    had raised the signal for it.
    """
    where, fate = (None, None) if routed is None else (routed.destination, routed.fate)
    error = _signal_of(outcome)
    return DeliveryResult(delivery, action, outcome, run_s, where, error, active_trace(), fate)


def _signal_of(outcome: Outcome) -> Signal | None:
    match outcome:
        case Defer(delay_s=delay_s):
            return DeferMessage(timedelta(seconds=delay_s))
        case Reject(reason=RejectionReason.UNACCEPTABLE, detail=detail):
            return InvalidMessage(detail)
        case Reject(detail=detail):
            return RejectMessage(detail)
        case _:
            return None


def is_unacceptable(result: DeliveryResult) -> bool:
    """Whether it counts towards `Subscription.unacceptable_limit`."""
    outcome = result.outcome
    return isinstance(outcome, Reject) and outcome.reason in INVALID_REASONS


def status_of(result: DeliveryResult) -> Status | None:
    """What became of the message; None for one that was handed back untried."""
    match result.outcome, result.action:
        case Ack(), _:
            return Status.PROCESSED
        case Reject(), Ack():
            is_gone = result.fate is Fate.DISCARDED
            return Status.DISCARDED if is_gone else Status.DEAD_LETTERED
        case ((Defer() | Reject()), _):
            return Status.RETRYING
        case _:
            return None


def outcome_event(result: DeliveryResult, status: Status, subscription: str) -> OutcomeEvent:
    """The event observers are told."""
    delivery, outcome = result.delivery, result.outcome
    reason = outcome.reason if isinstance(outcome, Reject) else None
    return OutcomeEvent(
        message_id=delivery.message.id,
        status=status,
        attempt=delivery.attempt,
        queue=delivery.queue,
        subscription=subscription,
        message_type=delivery.message.type,
        reason=reason,
        destination=result.destination,
        detail=_detail(result),
        run_s=result.run_s,
        created_at_s=delivery.message.created_at_s,
        error_type="" if result.error is None else type(result.error).__name__,
        fate=result.fate,
    )


def _detail(result: DeliveryResult) -> str:
    if isinstance(result.outcome, Reject):
        return result.outcome.detail
    return "" if result.error is None else describe(result.error)
