"""Bounds: how many messages a second credits, calls and the processor allow. Pure.

| the limit | is reached when                                                                      |
|-----------|--------------------------------------------------------------------------------------|
| credits   | each is bound for a receive, a delete and the processor time of its batch, no longer |
| pollers   | as many receives as the gateway may have are under way, and each brings a full batch |
| deletes   | the same of the deletes                                                              |
| processor | the pump is as fast as with no distance at all                                       |
"""

from __future__ import annotations

import attrs

from ..reading import Reading


@attrs.frozen
class Bound:
    """The most messages a second, and what sets it."""

    rate: float
    limit: str


def bound_of(far: Reading, near: Reading) -> Bound:
    """What the pump of `far` could do at best, with `near` for its processor's share."""
    figures = far.figures
    call_s = figures["call_ms"] / 1000
    batch = figures["batch_count"]
    work_s = batch * near.cpu_us / 1e6
    rates = {
        "credits": figures["credit_count"] / (2 * call_s + work_s),
        "pollers": figures["poller_count"] * batch / call_s,
        "deletes": figures["delete_call_count"] * batch / call_s,
        "processor": near.rate,
    }
    limit = min(rates, key=lambda name: rates[name])
    return Bound(rates[limit], limit)


def share_of_bound(far: Reading, near: Reading) -> float:
    """Which part of it was reached."""
    return far.rate / bound_of(far, near).rate
