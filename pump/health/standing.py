"""Standing orders: what was asked of subscriptions, for processes that start later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..dispatcher import Dispatcher
from ..performer import Asked

_ASKED = {"pause": Asked.PAUSE, "drain": Asked.DRAIN, "resume": Asked.RUN}


@attrs.frozen(kw_only=True)
class Order:
    """What one subscription is to do, as a performer would have it after the same words."""

    asked: Asked = Asked.RUN
    concurrency: int | None = None
    """None for what the app says."""

    def after(self, action: str, concurrency: int | None) -> Order:
        """What is to be done once this was asked as well."""
        if action == "scale":
            return attrs.evolve(self, concurrency=concurrency)
        if action == "pause" and self.asked is Asked.DRAIN:
            return self  # As `Performer.ask` has it: a drain hands back more than a pause would.
        return attrs.evolve(self, asked=_ASKED[action])


Standing = Mapping[str, Order]
"""By subscription."""
UNASKED = Order()


def as_json(standing: Standing) -> dict[str, dict[str, Any]]:
    """For a process to come."""
    return {name: attrs.asdict(order) for name, order in standing.items()}


def from_json(found: Mapping[str, Mapping[str, Any]]) -> Standing:
    """What `as_json` made."""
    return {
        name: Order(asked=Asked(each["asked"]), concurrency=each["concurrency"])
        for name, each in found.items()
    }


def obey(standing: Standing, dispatcher: Dispatcher) -> None:
    """Have a dispatcher that does not run yet do what was asked of others before it.

    A subscription that this version of the app does not have is nobody's to pause.
    """
    for performer in dispatcher.performers:
        order = standing.get(performer.subscription.name, UNASKED)
        performer.ask(order.asked)
        if order.concurrency is not None:
            performer.concurrency = order.concurrency
