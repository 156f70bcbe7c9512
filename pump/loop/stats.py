"""Stats: what one pump has done, for summaries and for the health page."""

from __future__ import annotations

import attrs

from .run_times import RunTimes


@attrs.define
class PumpStats:
    """Counts since the pump was made; a restart does not reset them."""

    received: int = 0
    processed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    invalid: int = 0
    released: int = 0
    """Handed back untried."""
    leases_lost: int = 0
    restarts: int = 0
    last_receive_at_s: float | None = None
    """On the pump's clock: when a receive last succeeded, with messages or without."""
    run_times: RunTimes = attrs.field(factory=RunTimes)
    """How long handlers took."""
