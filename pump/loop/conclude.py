"""Conclude: one delivery, from bytes to its ending: handled, decided and, if rejected, routed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs

from ..clock import Clock
from ..message import Delivery
from ..observability.in_hand import Trace, active_trace
from ..observability.telemetry import Telemetry
from ..outcome import ACK, Action, Defer, Outcome, Reject
from ..rejection import RejectionRouter
from .dispatch import Dispatch
from .ending import Ending


@attrs.frozen(eq=False)
class Conclude:
    """Has a delivery handled, and routes it away when it is rejected. Settling is the caller's."""

    dispatch: Dispatch
    router: RejectionRouter
    max_defer_s: float | None
    clock: Clock
    telemetry: Telemetry | None = None

    async def __call__(
        self, delivery: Delivery, is_recalled: Callable[[Delivery], bool]
    ) -> Ending | None:
        """Return how it ended; None when it was recalled, for it is no longer ours to judge.

        Never raises for the message's sake. A cancellation that is no recall passes through.
        """
        started_s = self.clock.now_s()
        trace: Trace | None = None
        try:
            if self.telemetry is None:
                outcome, error = await self.dispatch(delivery)
            else:
                outcome, error, trace = await self._dispatch_watched(delivery, self.telemetry)
            run_s = self.clock.now_s() - started_s
            if is_recalled(delivery):
                return None  # No longer ours to route.
            if outcome is ACK:
                return Ending(delivery, ACK, ACK, run_s, None, None, trace)
            if not isinstance(outcome, Reject):
                action = self._within_reach(outcome)
                return Ending(delivery, action, action, run_s, None, error, trace)
            routed = await self.router.route(delivery, outcome.reason, outcome.detail)
        except asyncio.CancelledError:
            if not is_recalled(delivery):
                raise
            return None
        if is_recalled(delivery):
            return None  # Told to stop: whatever it says now is not to be relied on.
        return Ending(delivery, routed.action, outcome, run_s, routed.destination, error, trace)

    async def _dispatch_watched(
        self, delivery: Delivery, telemetry: Telemetry
    ) -> tuple[Outcome, BaseException | None, Trace | None]:
        with telemetry.processing(self.dispatch.subscription, delivery) as processing:
            trace = active_trace()
            outcome, error = await self.dispatch(delivery)
            processing.ended(outcome, error)
        return outcome, error, trace

    def _within_reach(self, action: Action) -> Action:
        if isinstance(action, Defer) and self.max_defer_s is not None:
            return Defer(min(action.delay_s, self.max_defer_s))
        return action
