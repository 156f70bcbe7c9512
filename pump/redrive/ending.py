"""Ending: when a redrive has met everything that it can meet. Pure.

| left to do | nothing came for       | others hold    | it is over                            |
|------------|------------------------|----------------|---------------------------------------|
| nothing    |                        |                | yes                                   |
| something  | less than two looks    |                | no                                    |
| something  | two looks              | nothing        | yes, but for a run that was cut short |
| something  | ten seconds            | nothing        | yes                                   |
| something  | a lease and a bit more | whatever       | yes                                   |
"""

from __future__ import annotations

import attrs

_LOOKS = 2
_SURE_S = 10.0
"""Brokers only estimate what is in flight, and learn of it late."""
_BIT_MORE_S = 5.0


@attrs.frozen(kw_only=True)
class Silence:
    """How long nothing has come, and who may still have something."""

    look_count: int = 0
    since_s: float = 0.0
    in_other_hands: int | None = None
    """None when the broker does not say."""


def is_over(left: int, silence: Silence, *, lease_s: float, is_resumed: bool) -> bool:
    """Whether to stop looking for what is left."""
    if left <= 0:
        return True
    if silence.look_count < _LOOKS:
        return False
    if silence.since_s >= lease_s + _BIT_MORE_S:
        return True
    if silence.in_other_hands != 0:
        return False
    return not is_resumed or silence.since_s >= _SURE_S


def lease_for(held_count: int) -> float:
    """How long a lease should be, in seconds, when so many messages are held to the end.

    Each is extended twice a lease: with longer ones, many can be kept. After a crash the next run
    waits that long at worst.
    """
    return float(min(3_600, max(30, held_count // 100)))
