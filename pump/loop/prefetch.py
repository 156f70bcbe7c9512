"""Prefetch: how many messages may wait in hand, when nobody said. Pure.

| a full hand was worked off in | then                                                        |
|-------------------------------|-------------------------------------------------------------|
| less than 20 ms               | twice as many: the broker, not the handlers, sets the pace  |
| more than 200 ms              | half as many, so that other consumers find something to do  |
| between                       | as many as now                                              |
"""

from __future__ import annotations

_FAST_S = 0.02
_SLOW_S = 0.2


def adapt_prefetch(prefetch: int, *, least: int, most: int, worked_off_s: float) -> int:
    """The prefetch to have after two full receives that were `worked_off_s` apart."""
    if worked_off_s < _FAST_S:
        return max(least, min(2 * prefetch, most))
    if worked_off_s > _SLOW_S:
        return max(least, prefetch // 2)
    return prefetch
