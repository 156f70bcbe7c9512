"""Conclude: one delivery, from bytes to its ending: handled, decided and, if rejected, routed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs

from ..clock import Clock
from ..message import Delivery
from ..observability.in_hand import Trace, active_trace
from ..observability.telemetry import Telemetry
from ..outcome import ACK, Action, Defer, Outcome, Reject
from ..rejection import RejectionRouter
from .dispatch import Dispatch
from .ending import Ending


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
class Conclude:
    """Has a delivery handled, and routes it away when it is rejected. Settling is the caller's."""

    dispatch: Dispatch
    router: RejectionRouter
    max_defer_s: float | None
    clock: Clock
    telemetry: Telemetry | None = None
    hold: Callable[[Delivery], Awaitable[bool]] | None = None
    """Whether the message is ours, asked before it is routed; None where nothing can be asked."""

    async def __call__(self, delivery: Delivery, orders: Orders) -> Ending | None:
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
                return Ending(delivery, ACK, ACK, run_s, None, None, trace)
            if not isinstance(outcome, Reject):
                action = self._within_reach(outcome)
                return Ending(delivery, action, action, run_s, None, error, trace)
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
        return Ending(delivery, routed.action, outcome, run_s, where, error, trace, fate)

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
