"""Inbox: which keys have been handled, so that a message delivered twice is handled once.

A key is free, claimed or done:

| from    | event                          | to      | the caller is told             |
|---------|--------------------------------|---------|--------------------------------|
| free    | claim                          | claimed | `Claimed`                      |
| claimed | claim by another               | claimed | `Busy`, until when             |
| claimed | its lease ends (crash)         | free    | nothing                        |
| claimed | it seems to last for longer    | claimed | `Busy`, for a lease from now   |
|         | than its lease (clock set back)|         |                                |
| claimed | release by its owner (failure) | free    | nothing                        |
| any     | complete                       | done    | nothing                        |
| done    | claim                          | done    | `AlreadyDone`                  |
| done    | its retention ends             | free    | nothing                        |

So a process that dies while it handles a key delays that key by a lease, and loses nothing; a
key that is done stays so for the retention, even if another process still believes to hold it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple, Protocol

import attrs

from ..context import Context, current_context
from ..errors import ConfigurationError

HELD: Final = "inbox.held"
"""Where a `Context.bag` lists the claims its handler runs under, the innermost last."""


@attrs.frozen
class Claimed:
    """The key was free and is the caller's now."""


@attrs.frozen
class AlreadyDone:
    """The key was handled before."""


@attrs.frozen
class Busy:
    """Another owner is handling the key; its claim lasts until `expires_at_s` (Unix time)."""

    expires_at_s: float


Claim = Claimed | AlreadyDone | Busy


class Inbox(Protocol):
    """Remembers what was handled. Every method is atomic, and may raise `StorageFailed`.

    An owner is one attempt at handling, not a process: two deliveries of one message inside
    one process exclude one another too. Times are Unix seconds and come from the caller.
    """

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        """Take the key for `lease_s` if it is free. Of any number of callers, one is given it.

        An owner that asks again for what it has may be told `Claimed` or `Busy`.
        """

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        """Hold a claim for `lease_s` from now; False when it is no longer the owner's."""

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        """Return once it is durable that the key was handled, be the claim still held or not."""

    async def release(self, key: str, *, owner: str) -> None:
        """Free a claim at once. Does nothing when the owner has none, or the key is done."""

    async def aclose(self) -> None:
        """Let go of files and threads; may be called twice."""


@attrs.define(eq=False)
class Held:
    """A claim in a handler's hands, noted in `Context.bag[HELD]`."""

    inbox: Inbox
    key: str
    owner: str
    lease_s: float = 30.0
    """How long a claim lasts."""
    is_recorded: bool = False
    """The store has committed the completion together with the handler's own work."""


def current_claim(inbox: Inbox) -> tuple[Context, Held]:
    """The claim on `inbox` under which the running handler runs."""
    context = current_context()
    if context is not None:
        for held in reversed(context.bag.get(HELD, ())):
            if held.inbox is inbox:
                return context, held
    raise ConfigurationError(
        "transaction", inbox, "use it inside a handler that stands behind OnceOnly with this inbox"
    )


def check_retention(field: str, retention: object) -> float:
    """Return a retention in seconds, or say what is wrong with it."""
    if not isinstance(retention, timedelta) or retention <= timedelta(0):
        raise ConfigurationError(field, retention, "use a timedelta above zero")
    return retention.total_seconds()


class _MemoryClaim(NamedTuple):
    owner: str
    expires_at_s: float
    lease_s: float


class MemoryInbox:
    """An inbox that lasts as long as its process; for tests, and where a restart may repeat.

    Bounded: past `max_count` keys the oldest are forgotten before their retention ends.
    """

    def __init__(
        self, *, retention: timedelta = timedelta(days=1), max_count: int = 100_000
    ) -> None:
        self._retention_s = check_retention("MemoryInbox.retention", retention)
        if max_count < 1:
            raise ConfigurationError("MemoryInbox.max_count", max_count, "use 1 or more")
        self._max_count = max_count
        # Both in the order in which they were written, which is the order of expiry.
        self._claims: dict[str, _MemoryClaim] = {}
        self._done: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._claims) + len(self._done)

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        self._forget_expired(now_s)
        if self._done.get(key, now_s) > now_s:
            return AlreadyDone()
        known = self._claims.get(key)
        if known is not None and known.expires_at_s > now_s:
            if known.expires_at_s > now_s + known.lease_s:
                known = known._replace(expires_at_s=now_s + known.lease_s)
                self._claims[key] = known
            return Busy(known.expires_at_s)
        self._claims.pop(key, None)
        self._claims[key] = _MemoryClaim(owner, now_s + lease_s, lease_s)
        return Claimed()

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        if not self._is_held(key, owner):
            return False
        del self._claims[key]
        self._claims[key] = _MemoryClaim(owner, now_s + lease_s, lease_s)
        return True

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        self._claims.pop(key, None)
        self._done.pop(key, None)
        self._done[key] = now_s + self._retention_s
        self._forget_expired(now_s)

    async def release(self, key: str, *, owner: str) -> None:
        if self._is_held(key, owner):
            del self._claims[key]

    async def aclose(self) -> None:
        """Do nothing: what is remembered stays until the object goes."""

    def _is_held(self, key: str, owner: str) -> bool:
        known = self._claims.get(key)
        return known is not None and known.owner == owner

    def _forget_expired(self, now_s: float) -> None:
        while self._done:
            key, expires_at_s = next(iter(self._done.items()))
            if expires_at_s > now_s and len(self._done) <= self._max_count:
                break
            del self._done[key]
        while self._claims:
            key, known = next(iter(self._claims.items()))
            if known.expires_at_s > now_s:
                break
            del self._claims[key]
