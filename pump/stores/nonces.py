"""Nonces: which sealed messages were seen, so that a copy of one is not handled again.

A nonce is free, claimed by a holder (the broker's message it arrived on) or done:

| from    | event                            | to      | the caller is told |
|---------|----------------------------------|---------|--------------------|
| free    | claim                            | claimed | True               |
| claimed | claim by its holder (redelivery) | claimed | True               |
| claimed | claim by another (a copy)        | claimed | False              |
| claimed | release by its holder (rejected) | free    | nothing            |
| any     | complete                         | done    | nothing            |
| done    | claim                            | done    | False              |
| any     | its time ends                    | free    | nothing            |

Unlike an inbox's, a claim has no owner that could die: whoever is given the broker's message
again is given its nonce again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..errors import ConfigurationError
from ..observability import vocabulary
from ..observability.log import get_logger

_log = get_logger("pump.crypto")


class NonceMark(NamedTuple):
    """What became of a nonce: done, or else released by its holder."""

    nonce: bytes
    holder: str
    is_done: bool
    until_s: float


class NonceStore(Protocol):
    """Remembers nonces. Every method is atomic, also between processes that share the store, and
    may raise `StorageFailed`. Times are Unix seconds and come from the caller.
    """

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        """Take the nonce if it is free or the holder's own; it is kept until `until_s`."""

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        """Return once these are recorded, all of them. A second time does no harm."""

    async def aclose(self) -> None:
        """Let go of files and threads; may be called twice, and a later use opens them again."""


class _Entry(NamedTuple):
    holder: str
    is_done: bool
    until_s: float


class MemoryNonces:
    """Nonces for as long as the process lives, and for this process alone.

    Bounded: past `max_count` the oldest are forgotten before their time, which is logged once;
    a replay of those is accepted.
    """

    def __init__(self, *, max_count: int = 1_000_000) -> None:
        if max_count < 1:
            raise ConfigurationError("MemoryNonces.max_count", max_count, "use 1 or more")
        self._max_count = max_count
        # In the order in which they were written, which is the order of expiry.
        self._entries: dict[bytes, _Entry] = {}
        self._has_forgotten = False

    def __len__(self) -> int:
        return len(self._entries)

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        self._forget(now_s)
        known = self._entries.get(nonce)
        is_alive = known is not None and known.until_s > now_s
        if known is not None and is_alive and (known.is_done or known.holder != holder):
            return False
        self._write(nonce, _Entry(holder, is_done=False, until_s=until_s))
        return True

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        for nonce, holder, is_done, until_s in marks:
            known = self._entries.get(nonce)
            if is_done:
                self._write(nonce, _Entry(holder, is_done=True, until_s=until_s))
            elif known is not None and not known.is_done and known.holder == holder:
                del self._entries[nonce]

    async def aclose(self) -> None:
        """Do nothing: what is remembered stays until the object goes."""

    def _write(self, nonce: bytes, entry: _Entry) -> None:
        self._entries.pop(nonce, None)
        self._entries[nonce] = entry

    def _forget(self, now_s: float) -> None:
        while self._entries:
            nonce, entry = next(iter(self._entries.items()))
            if entry.until_s > now_s:
                if len(self._entries) < self._max_count:
                    break
                self._warn_once()
            del self._entries[nonce]

    def _warn_once(self) -> None:
        if not self._has_forgotten:
            self._has_forgotten = True
            _log.warning(
                vocabulary.NONCES_FORGOTTEN,
                max_count=self._max_count,
                remedy="raise MemoryNonces.max_count, shorten the ttl, or use SqliteNonces",
            )
