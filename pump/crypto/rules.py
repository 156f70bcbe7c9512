"""Rules: what an `Encryption` was told, checked; and how old a message may be."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from weakref import WeakKeyDictionary

import attrs

from ..backoff import RECONNECT
from ..clock import Clock
from ..errors import ConfigurationError, StorageFailed
from ..message import Delivery, new_id
from ..observability import vocabulary
from ..observability.log import get_logger
from ..stores.nonces import MemoryNonces, NonceMark, NonceStore
from .envelope import VERSIONS, Envelope, moment
from .errors import (
    MessageExpired,
    MessageFromFuture,
    NonceReused,
    SealedForAnotherQueue,
    UnsupportedVersion,
)
from .keys import KeyProvider

_NO_TIME = timedelta(0)
_ONE_DAY = timedelta(days=1)


class PlaintextPolicy(StrEnum):
    """What becomes of a message that arrives unencrypted."""

    REJECT = "reject"
    """It is rejected as unacceptable (the default): with access to the queue one could leave
    encryption out, so anything else makes it optional for an attacker too."""
    ALLOW = "allow"
    """It is handled, with a WARNING: while senders are being moved to encryption."""
    ALLOW_WITH_ALERT = "allow-with-alert"
    """It is handled, with an ERROR, a count and an event: for the end of such a move."""


def _policy(value: str) -> PlaintextPolicy:
    try:
        return PlaintextPolicy(value)
    except ValueError:
        choices = ", ".join(repr(policy.value) for policy in PlaintextPolicy)
        raise ConfigurationError("Encryption.plaintext", value, f"use one of {choices}") from None


def _names(queues: Iterable[str]) -> frozenset[str]:
    if isinstance(queues, str):
        raise ConfigurationError("Encryption.also_from", queues, "give a list of queues' names")
    return frozenset(queues)


@attrs.frozen(kw_only=True)
class Rules:
    """How messages are encrypted. Survives pickling if its keys can be loaded again."""

    keys: KeyProvider | None
    is_on: bool = True
    plaintext: PlaintextPolicy = attrs.field(default=PlaintextPolicy.REJECT, converter=_policy)
    max_age: timedelta | None = None
    clock_tolerance: timedelta = timedelta(minutes=5)
    nonces: NonceTracking | None = None
    write_version: int = VERSIONS[-1]
    oldest_version: int = VERSIONS[0]
    bind_queue: bool = False
    also_from: frozenset[str] = attrs.field(default=frozenset(), converter=_names)

    def __attrs_post_init__(self) -> None:
        for name in ("write_version", "oldest_version"):
            if (version := getattr(self, name)) not in VERSIONS:
                raise ConfigurationError(f"Encryption.{name}", version, "use 1 or 2")
        if self.write_version < self.oldest_version:
            raise ConfigurationError(
                "Encryption.write_version",
                self.write_version,
                f"oldest_version={self.oldest_version} would not open what is written",
            )
        if self.bind_queue and self.write_version < VERSIONS[-1]:
            raise ConfigurationError(
                "Encryption.bind_queue", True, "version 1 names no queue; write version 2"
            )
        if (self.is_on or self.keys is not None) and not hasattr(self.keys, "active"):
            raise ConfigurationError(
                "Encryption.keys", type(self.keys).__name__, "use KeyRing(Key(id, material))"
            )
        _check_time("max_age", self.max_age, timedelta(microseconds=1))
        _check_time("clock_tolerance", self.clock_tolerance, _NO_TIME)
        if self.max_age is not None and self.nonce_ttl < self.max_age + self.clock_tolerance:
            raise ConfigurationError(
                "NonceTracking.ttl",
                self.nonce_ttl,
                f"a copy would still be fresh when its nonce is forgotten; use None, or at least "
                f"max_age and clock_tolerance together: {self.max_age + self.clock_tolerance}",
            )

    @property
    def nonce_ttl(self) -> timedelta:
        """How long nonces are remembered, if they are tracked."""
        if self.nonces is not None and self.nonces.ttl is not None:
            return self.nonces.ttl
        return _ONE_DAY if self.max_age is None else self.max_age + self.clock_tolerance

    def check_version(self, envelope: Envelope) -> None:
        """Raise for a version that is read by this release, and not wanted here."""
        if envelope.version < self.oldest_version:
            raise UnsupportedVersion(envelope.version)

    def check_queue(self, sealed_for: str | None, queue: str, message_id: str) -> None:
        """Raise for a message that is bound to a queue which is not its own here."""
        if sealed_for is not None and sealed_for != queue and sealed_for not in self.also_from:
            raise SealedForAnotherQueue(message_id, sealed_for, queue)

    def check_age(self, encrypted_at_ms: int, *, now_s: float) -> None:
        """Raise unless a message of that time is fresh now."""
        if self.max_age is None:
            return
        age_s = now_s - encrypted_at_ms / 1000
        if age_s > self.max_age.total_seconds():
            raise MessageExpired(moment(encrypted_at_ms), self.max_age)
        # A message from the future would stay fresh for longer than max_age.
        if -age_s > self.clock_tolerance.total_seconds():
            raise MessageFromFuture(moment(encrypted_at_ms), self.clock_tolerance)


def _check_time(name: str, value: object, least: timedelta) -> None:
    if value is not None and (not isinstance(value, timedelta) or value < least):
        remedy = "use a timedelta of zero or more" if not least else "use a timedelta above zero"
        raise ConfigurationError(f"Encryption.{name}", value, remedy)


# Replay: an encrypted message is handled once, though its envelope can be sent again by anyone.
#
# A nonce is claimed by the broker's message that it arrives on (`Delivery.broker_id`). The same
# message, delivered again, is given it again; any other one is a copy and is refused, and once the
# message was handled every one is. Only an envelope that was authenticated claims anything, so a
# forger cannot use up the nonces of others.
#
# Where a gateway has no broker ids, the queue and the application's message id stand in for it: a
# copy on the same queue then looks like a redelivery until the first one was handled.

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
        # By delivery, and for as long as there is one: to settle takes the object.
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
        """Let go of the nonce before a copy is routed, so that it is free for its reader there.

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
            # Only now: a claim of one of these meanwhile must wait for the store to know.
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
