"""Calls: what a pump asked of its gateway while it was measured."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Calls:
    """Calls of a gateway's ports. One may be several requests to the provider, or none."""

    sends: int = 0
    receives: int = 0
    empty_receives: int = 0
    settles: int = 0
    extends: int = 0
    received: int = 0
    """Messages that receives brought."""
    settled: int = 0
    """Messages that settle calls were about."""

    @property
    def mean_received(self) -> float | None:
        """Messages a receive that brought any."""
        full = self.receives - self.empty_receives
        return self.received / full if full else None
