"""The lock of a session: one group of a queue, for one owner, until a time.

It is fenced by what it hands out: a receipt of a session is valid for exactly as long as its lock,
for both end together, and the next lock hands out new ones.
"""

from __future__ import annotations

import attrs

from .domain import Domain
from .record import LeaseBatch


@attrs.define(eq=False)
class SessionLock:
    """One session, from its acceptance until its lock is released or has run out."""

    id: str
    group: str
    owner: str
    expires_s: float
    request: int | None = None
    """The number of the remote request that asked for it, to answer it once more."""
    domain: Domain = attrs.field(factory=Domain, repr=False)
    """The group's, in which the lock counts as one more in flight."""
    parts: list[LeaseBatch] = attrs.field(factory=list, repr=False)
    """What was received under it, by receive; some may be settled since."""
    is_held: bool = True

    def in_hand(self) -> list[LeaseBatch]:
        """The receives of which something is not settled."""
        self.parts = [part for part in self.parts if part.members]
        return self.parts

    def add(self, part: LeaseBatch) -> None:
        """Count what a receive of this session took, or a part of it that has its own end."""
        part.lock = self
        self.in_hand().append(part)

    def take_back(self, part: LeaseBatch) -> None:
        """Count a part again whose settlement could not be written: as it had nothing in it, a
        renewal may have passed it by.
        """
        if self.is_held and not part.members:
            part.expires_s = self.expires_s
            self.parts = [*(each for each in self.parts if each is not part), part]

    def receipts(self) -> list[str]:
        """Of all that is not settled, in the order it was received."""
        return [record.receipt for part in self.in_hand() for record in part.members.values()]
