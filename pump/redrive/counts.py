"""Counts: how far a redrive has come. Pure."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Counts:
    """What became of the dead letters that one consumer received."""

    sent: int = 0
    """Sent to the target, and recorded."""
    removed: int = 0
    """Removed from the dead-letter queue, those that an earlier run had sent included."""
    repeated: int = 0
    """Of those sent: how many were sent again because a send before had no answer. They are in
    the target twice at most, and once where it de-duplicates."""
    refused: int = 0
    """Not taken by the target; they are in the dead-letter queue."""
    held: int = 0
    """Not selected: received, and handed back untouched."""
    lost_leases: int = 0
    """Leases that ran out in hand; the broker delivers those messages again."""
    first_refusal: str = ""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in attrs.fields(Counts)
                if field.name != "first_refusal"
            },
            first_refusal=self.first_refusal or other.first_refusal,
        )


# Ending: when a redrive has met everything that it can meet. Pure.
#
# | left to do | nothing came for       | others hold    | it is over                            |
# |------------|------------------------|----------------|---------------------------------------|
# | nothing    |                        |                | yes                                   |
# | something  | less than two looks    |                | no                                    |
# | something  | two looks              | nothing        | yes, but for a run that was cut short |
# | something  | ten seconds            | nothing        | yes                                   |
# | something  | a lease and a bit more | whatever       | yes                                   |

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
