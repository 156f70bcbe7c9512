"""Sessions in a replica: what an operation on them does, the same in every replica."""

from __future__ import annotations

from typing import assert_never

import attrs

from pump.outcome import ABANDON

from ..._engine.record import LeaseBatch
from ..._engine.session_lock import SessionLock
from ..._engine.state import QueueState
from .session_entries import Accept, KeptLock, Release, Renew, SessionOp, TakeInSession


@attrs.frozen
class Granted:
    """A session is held until then, by the server's time."""

    token: str
    session: str
    expires_s: float


@attrs.frozen
class NotGranted:
    """The session was not free, or its lock has ended."""


@attrs.frozen
class Released:
    """Nobody has the session any more, or its lock had ended before."""


SessionResult = Granted | NotGranted | Released


def apply_session(
    queue: QueueState, op: SessionOp, *, at_s: float, margin_s: float
) -> SessionResult | LeaseBatch | None:
    """Do what an operation says: for a receive, what it leased, None for nothing."""
    if isinstance(op, Accept):
        until_s = at_s + margin_s + op.lease_s
        accepted = queue.sessions.accept(op.session, until_s=until_s)
        return NotGranted() if accepted is None else _granted(accepted)
    lock = queue.sessions.find(op.token)
    if lock is None:
        return Released() if isinstance(op, Release) else NotGranted()
    match op:
        case TakeInSession(_, max_count):
            return queue.take_in_session(lock, max_count)
        case Renew(_, lease_s):
            queue.sessions.renew(lock, until_s=at_s + margin_s + lease_s)
            return _granted(lock)
        case Release():
            receipts = lock.receipts()
            detached = queue.detach(receipts, [ABANDON] * len(receipts))
            queue.finish_returned(detached.returned, now_s=at_s)
            queue.release(lock)
            return Released()
        case _:
            assert_never(op)


def keep_locks(queue: QueueState) -> tuple[KeptLock, ...]:
    """Every lock, for a snapshot."""
    kept = (KeptLock(lock.id, lock.group, lock.expires_s) for lock in queue.sessions)
    return tuple(sorted(kept, key=lambda each: each.token))


def restore_locks(kept: tuple[KeptLock, ...]) -> list[SessionLock]:
    """Every lock of a snapshot."""
    return [SessionLock(each.token, each.session, "", each.expires_s) for each in kept]


def _granted(lock: SessionLock) -> Granted:
    return Granted(lock.id, lock.group, lock.expires_s)
