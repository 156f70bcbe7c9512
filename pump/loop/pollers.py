"""Pollers: how many receives at once. Pure.

| a receive brought     | then                                                            |
|-----------------------|-----------------------------------------------------------------|
| all it asked for      | there may be more: one poller more, up to the gateway's maximum |
| some                  | as many as now                                                  |
| nothing               | one fewer, down to one                                          |
"""

from __future__ import annotations


def adapt_pollers(target: int, *, asked: int, got: int, most: int) -> int:
    """The number of pollers to have after a receive."""
    if got >= asked:
        return min(target + 1, most)
    if got == 0:
        return max(target - 1, 1)
    return target
