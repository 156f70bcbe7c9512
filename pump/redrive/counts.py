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
