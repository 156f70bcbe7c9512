"""Polls: how a wait of any length is made of SQS's whole seconds. Pure.

| left of the wait | then                                                                    |
|------------------|-------------------------------------------------------------------------|
| a second or more | a long poll of as many whole seconds as SQS allows                      |
| less             | a pause for the rest, and a last look without waiting                   |

A long poll is never cut short: SQS would go on with it, lease a message and find nobody there.
"""

from __future__ import annotations

from math import floor

import attrs

from .limits import MAX_LONG_POLL_S


@attrs.frozen
class Poll:
    """One request: wait before it, and let SQS wait."""

    pause_s: float
    wait_s: int
    is_last: bool


def first_poll(wait_s: float) -> Poll:
    """The first request of a receive; a short one when there is no whole second to wait."""
    return Poll(0.0, _long_poll_s(wait_s), wait_s <= 0)


def next_poll(left_s: float) -> Poll | None:
    """The request after one that found nothing, None when the time is over."""
    if left_s <= 0:
        return None
    if left_s < 1:
        return Poll(left_s, 0, True)
    return Poll(0.0, _long_poll_s(left_s), False)


def _long_poll_s(left_s: float) -> int:
    return max(0, min(MAX_LONG_POLL_S, floor(left_s)))
