"""Operations on sessions, as entries of a log carry them. Who gets a lock is decided by replay."""

from __future__ import annotations

import msgspec


class Accept(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Lock a group, or for None the next that has a message to give."""

    session: str | None
    lease_s: float


class TakeInSession(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Lease what comes next of a session, until its lock ends."""

    token: str
    max_count: int


class Renew(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Make a lock, and the leases under it, end later."""

    token: str
    lease_s: float


class Release(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Hand back what a session has in hand, uncounted, and let go of it."""

    token: str


SessionOp = Accept | TakeInSession | Renew | Release


class KeptLock(msgspec.Struct, frozen=True, array_like=True):
    """One lock in a snapshot."""

    token: str
    session: str
    expires_s: float
