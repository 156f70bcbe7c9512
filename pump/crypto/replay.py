"""Replay: a sealed message is handled once, though its envelope can be sent again by anyone.

A nonce is claimed by the broker's message that it arrives on (`Delivery.broker_id`). The same
message, delivered again, is given it again; any other one is a copy and is refused, and once the
message was handled every one is. Only an envelope that was authenticated claims anything, so a
forger cannot use up the nonces of others.

Where a gateway has no broker ids, the queue and the application's message id stand in for it: a
copy on the same queue then looks like a redelivery until the first one was handled.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from datetime import timedelta
from weakref import WeakKeyDictionary

import attrs

from ..backoff import RECONNECT
from ..clock import Clock
from ..errors import ConfigurationError, StorageFailed
from ..ids import new_id
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..stores.nonces import MemoryNonces, NonceMark, NonceStore
from .envelope import Envelope
from .errors import NonceReused

_log = get_logger("pump.crypto")
_DIGEST_SIZE = 16


@attrs.frozen(kw_only=True)
class NonceTracking:
    """How nonces are tracked; `Encryption(nonces=…)` does it.

    `ttl` is how long a nonce is remembered after it was last seen; by default for as long as its
    message is fresh (`max_age` and `clock_tolerance` together), a day where messages do not age.
    `strict` refuses any second sight, redeliveries too: a message that fails is not tried again,
    it is rejected.
    """

    store: NonceStore = attrs.field(factory=MemoryNonces)
    ttl: timedelta | None = None
    strict: bool = False

    def __attrs_post_init__(self) -> None:
        ttl: object = self.ttl
        if ttl is not None and (not isinstance(ttl, timedelta) or ttl <= timedelta(0)):
            raise ConfigurationError("NonceTracking.ttl", self.ttl, "use a timedelta above zero")
        if isinstance(self.store, type) or not hasattr(self.store, "claim"):
            raise ConfigurationError(
                "NonceTracking.store", self.store, "use MemoryNonces() or SqliteNonces(path)"
            )


@attrs.frozen
class _Held:
    nonce: bytes
    holder: str


class NonceGuard:
    """Nonce tracking at work, for one open app.

    What became of a nonce is written behind, in batches. A crash may lose the last of it, and does
    little harm: the nonce stays claimed by a broker's message that is gone, so copies are refused
    as before (without broker ids a copy of those last messages would be accepted), and a message
    that was routed away cannot be redriven before the ttl is over.
    """

    def __init__(self, tracking: NonceTracking, ttl: timedelta, clock: Clock) -> None:
        self._store = tracking.store
        self._ttl_s = ttl.total_seconds()
        self._is_strict = tracking.strict
        self._clock = clock
        # By delivery, and for as long as there is one: who settles it has it in hand.
        self._held: WeakKeyDictionary[Delivery, _Held] = WeakKeyDictionary()
        self._marks: dict[bytes, NonceMark] = {}
        self._turn = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    async def accept(self, delivery: Delivery, envelope: Envelope) -> None:
        """Claim the nonce of an authenticated envelope. Raises `NonceReused`, `StorageFailed`."""
        if delivery in self._held:
            return  # Opened by hand a second time: this is still the same sight.
        nonce = _nonce_of(envelope)
        if nonce in self._marks:
            await self._write()
        holder = new_id() if self._is_strict else _holder_of(delivery)
        now_s = self._clock.time_s()
        is_ours = await self._store.claim(
            nonce, holder=holder, now_s=now_s, until_s=now_s + self._ttl_s
        )
        if not is_ours or self._is_done(nonce):
            raise NonceReused(delivery.message.id)
        self._held[delivery] = _Held(nonce, holder)

    async def release(self, delivery: Delivery) -> None:
        """Let go of the nonce before a copy is routed, so that it is free for who reads it there.

        Never raises: what cannot be written now is written behind.
        """
        if delivery in self._held:
            self.settled(delivery, is_handled=False)
            with suppress(StorageFailed):  # The writer behind has seen it too, and says so.
                await self._write()

    def settled(self, delivery: Delivery, *, is_handled: bool) -> None:
        """Complete the nonce, or release it for a redrive; soon, in the background."""
        held = self._held.pop(delivery, None)
        if held is None or (self._is_strict and not is_handled):
            return
        if not is_handled and self._is_done(held.nonce):
            return  # Handled by another delivery of the same message, whose lease we had lost.
        until_s = self._clock.time_s() + self._ttl_s
        self._marks[held.nonce] = NonceMark(held.nonce, held.holder, is_handled, until_s)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_behind(), name="pumphouse-nonces")

    async def aclose(self) -> None:
        """Write what is left, once, and let go of the store."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.cancel()
            await asyncio.wait([writing])
        try:
            await self._write()
        except StorageFailed as error:
            self._complain(error)
        finally:
            await self._store.aclose()

    def _is_done(self, nonce: bytes) -> bool:
        mark = self._marks.get(nonce)
        return mark is not None and mark.is_done

    async def _write_behind(self) -> None:
        attempt = 0
        while self._marks:
            try:
                await self._write()
            except StorageFailed as error:
                attempt += 1
                if attempt == 1:
                    self._complain(error)
                await self._clock.sleep(RECONNECT.delay_s(attempt, self._clock.chance()))
            else:
                attempt = 0

    async def _write(self) -> None:
        async with self._turn:
            batch = list(self._marks.values())
            if batch:
                await self._store.mark(batch)
            # Only now: who claims one of these meanwhile must wait for the store to know.
            for mark in batch:
                if self._marks.get(mark.nonce) is mark:
                    del self._marks[mark.nonce]

    def _complain(self, error: StorageFailed) -> None:
        _log.error(vocabulary.NONCES_UNRECORDED, count=len(self._marks), error=str(error))


def _nonce_of(envelope: Envelope) -> bytes:
    # A nonce is one of its key's. The key id comes first and the nonce has a fixed size, so no
    # two pairs give the same bytes.
    source = envelope.key_id.encode() + envelope.nonce
    return hashlib.blake2b(source, digest_size=_DIGEST_SIZE).digest()


def _holder_of(delivery: Delivery) -> str:
    # With the queue, because a broker may number the messages of each queue for itself.
    if delivery.broker_id is not None and delivery.broker_id != "":
        holder = f"broker\0{delivery.queue}\0{delivery.broker_id}"
    else:
        holder = f"message\0{delivery.queue}\0{delivery.message.id}"
    # SQLite does not take half a character, which some provider may have let into an id.
    return holder.encode("utf-8", "backslashreplace").decode()
