"""Encryption: the `PayloadEncryption` of an app. Encrypts what is posted, decrypts what is handled.

The order in which a body is decrypted, and why:

1. Parse, version: by nature first. `MalformedEnvelope`, `UnsupportedVersion`.
2. Key: by the id that the envelope claims. `KeyNotFound`; a wrong claim fails at 4.
3. Freshness, before anything is decrypted: a message that says itself that it is too old is
   refused at its word, for a forger gains nothing by making a message look old. One that looks
   fresh is not believed yet: its time is covered by the tag.
4. Tag: `AuthenticationFailed`, or the plaintext. From here on the header is true.
5. Queue, where the message is bound to one: `SealedForAnotherQueue`.
6. Nonce: only now, or a forger could use up the nonces of messages that are still to come.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any, assert_never
from weakref import WeakKeyDictionary

import attrs
from msgspec.structs import replace

from ..backoff import RECONNECT
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, CryptoError, StorageFailed
from ..events import Event, PlaintextAcceptedEvent
from ..message import Delivery, Message, new_id
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Counter, Counters
from ..ports import MAGIC
from ..stores.nonces import MemoryNonces, NonceMark, NonceStore
from .envelope import VERSIONS, Envelope, associated_data, make_header, moment, parse
from .errors import (
    KeyNotFound,
    MessageExpired,
    MessageFromFuture,
    NonceReused,
    PlaintextLooksSealed,
    SealedForAnotherQueue,
    UnencryptedMessage,
    UnsupportedVersion,
    logged,
)
from .keys import Key, KeyProvider

# Rules: what an `Encryption` was told, checked; and how old a message may be.

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


_level = logging.getLogger("pump.crypto")


class Encryption:
    """AES-256-GCM around the body of every message; ids, group and headers stay readable.

    `max_age` refuses messages encrypted longer ago (None: none are); clocks may then differ by
    `clock_tolerance`. `nonces` refuses copies (None: they are accepted). Best one an app: when
    two share one, the counts and events of both go to the app that opened last. Survives pickling
    if its keys can be loaded again; keys themselves are never pickled.

    `write_version=1` is for receivers that know no version 2 yet, and leaves type, content type
    and reply-to unprotected; `oldest_version=2` refuses such messages. `bind_queue` encrypts for
    the queue that a message is posted to; what is bound to another queue than it arrives from is
    refused, unless that one is named in `also_from`.
    """

    def __init__(
        self,
        keys: KeyProvider,
        *,
        max_age: timedelta | None = None,
        plaintext: PlaintextPolicy = PlaintextPolicy.REJECT,
        nonces: NonceTracking | None = None,
        clock_tolerance: timedelta = timedelta(minutes=5),
        write_version: int = 2,
        oldest_version: int = 1,
        bind_queue: bool = False,
        also_from: Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        rules = Rules(
            keys=keys,
            max_age=max_age,
            plaintext=plaintext,
            nonces=nonces,
            clock_tolerance=clock_tolerance,
            write_version=write_version,
            oldest_version=oldest_version,
            bind_queue=bind_queue,
            also_from=also_from,
        )
        self._set_up(rules, clock)

    @classmethod
    def off(
        cls,
        keys: KeyProvider | None = None,
        *,
        plaintext: PlaintextPolicy = PlaintextPolicy.ALLOW,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Encryption:
        """Encryption that is switched off, and says so: every send is warned of and counted.

        What arrives encrypted is still decrypted if there are keys for it.
        """
        return _with_rules(Rules(keys=keys, is_on=False, plaintext=plaintext), clock)

    def _set_up(self, rules: Rules, clock: Clock) -> None:
        self._rules = rules
        self._keys = rules.keys
        self._clock = clock
        self._counters = Counters()
        self._series: dict[tuple[str, str, bool], Counter] = {}
        self._emit: Callable[[Event], None] | None = None
        self._user_count = 0
        self._is_loaded = False
        self._turn = asyncio.Lock()
        self._aes: ModuleType | None = None
        self._guard: NonceGuard | None = None

    def __repr__(self) -> str:
        state = "" if self._rules.is_on else ".off"
        return f"Encryption{state}({self._keys!r}, plaintext={self._rules.plaintext.value!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Only how it was made: a KeyRing refuses, the other providers leave their keys out.
        return _with_rules, (self._rules,)

    # -- the app's life ----------------------------------------------------------------------

    async def start(self, counters: Counters, emit: Callable[[Event], None] | None) -> None:
        # Also for an app whose opening fails: it closes us all the same.
        self._user_count += 1
        self._counters, self._emit = counters, emit
        self._series.clear()
        # Two apps may open at once: loading twice and closing once would leave keys behind (R69).
        async with self._turn:
            if not self._is_loaded:
                await self._load()

    async def _load(self) -> None:
        if self._keys is not None:
            # Reading modules from the disk is nothing for the event loop.
            self._aes = await asyncio.to_thread(_load_aes)
            await self._keys.load()
        self._is_loaded = True
        if self._rules.nonces is not None:
            self._guard = NonceGuard(self._rules.nonces, self._rules.nonce_ttl, self._clock)

    async def aclose(self) -> None:
        self._user_count = max(0, self._user_count - 1)
        async with self._turn:
            if self._is_loaded and not self._user_count:
                await self._unload()
        if not self._user_count:
            self._turn = (
                asyncio.Lock()
            )  # A lock belongs to one loop; the next app may have its own.

    async def _unload(self) -> None:
        self._is_loaded = False
        guard, self._guard = self._guard, None
        try:
            if guard is not None:
                await guard.aclose()
        finally:
            self._aes = None
            if self._keys is not None:
                await self._keys.aclose()

    # -- out ---------------------------------------------------------------------------------

    async def encrypt(
        self, message: Message, queue: str, *, is_ready_made: bool = False
    ) -> Message:
        if is_ready_made and message.body.startswith(MAGIC):
            # Sent on as it is, if it is whole. Were it plaintext that only looks encrypted, sending
            # it would publish it, and encrypting it would hide a broken envelope: it is refused.
            self._check_whole(message)
            self._count(vocabulary.MESSAGES_SENT, queue, is_encrypted=True)
            return message
        if self._keys is None or not self._rules.is_on:
            return self._left_plain(message, queue)
        key = await self._keys.active()
        body = self._encrypted_body(key, message, queue)
        self._count(vocabulary.MESSAGES_SENT, queue, is_encrypted=True)
        return replace(message, body=body)

    def _check_whole(self, message: Message) -> None:
        try:
            parse(message.body)
        except CryptoError as error:
            if self._rules.is_on:
                raise
            raise PlaintextLooksSealed(message.id) from error

    def _encrypted_body(self, key: Key, message: Message, queue: str) -> bytes:
        aes, rules = self._cipher(), self._rules
        nonce: bytes = aes.new_nonce()
        header = make_header(
            key.id_bytes,
            max(0, int(self._clock.time_s() * 1000)),
            nonce,
            version=rules.write_version,
            queue=queue if rules.bind_queue else None,
        )
        associated = associated_data(header, message)
        encrypted: bytes = aes.encrypt(key, message.body, nonce=nonce, associated=associated)
        return header + encrypted

    def _left_plain(self, message: Message, queue: str) -> Message:
        if message.body.startswith(MAGIC):
            raise PlaintextLooksSealed(message.id)
        _log.warning(
            vocabulary.ENCRYPTION_DISABLED,
            queue=queue,
            message_id=message.id,
            remedy="this message is sent as plaintext; give the app an Encryption(keys)",
        )
        self._count(vocabulary.MESSAGES_SENT, queue, is_encrypted=False)
        return message

    # -- in ----------------------------------------------------------------------------------

    async def decrypt(self, delivery: Delivery) -> Message:
        message = delivery.message
        is_encrypted = message.body.startswith(MAGIC)
        self._count(vocabulary.MESSAGES_RECEIVED, delivery.queue, is_encrypted=is_encrypted)
        if not is_encrypted:
            return self._met_plain(delivery)
        try:
            envelope = parse(message.body)
            plaintext = await self._open(delivery, envelope)
        except CryptoError as error:
            _log.warning(
                vocabulary.MESSAGE_UNOPENED,
                queue=delivery.queue,
                message_id=message.id,
                error=type(error).__name__,
            )
            raise
        if _level.isEnabledFor(logging.INFO):
            _log.info(
                vocabulary.MESSAGE_OPENED,
                queue=delivery.queue,
                message_id=message.id,
                encrypted=True,
                key_id=logged(envelope.key_id),
            )
        return replace(message, body=plaintext)

    async def _open(self, delivery: Delivery, envelope: Envelope) -> bytes:
        if self._keys is None:
            raise KeyNotFound(envelope.key_id)
        rules = self._rules
        rules.check_version(envelope)
        key = await self._keys.find(envelope.key_id)
        if rules.max_age is not None:
            rules.check_age(envelope.encrypted_at_ms, now_s=self._clock.time_s())
        associated = associated_data(envelope.header, delivery.message)
        plaintext: bytes = self._cipher().decrypt(key, envelope, associated=associated)
        rules.check_queue(envelope.queue, delivery.queue, delivery.message.id)
        if self._guard is not None:
            await self._guard.accept(delivery, envelope)
        return plaintext

    def _met_plain(self, delivery: Delivery) -> Message:
        message, queue = delivery.message, delivery.queue
        policy = self._rules.plaintext
        _log.log(
            logging.WARNING if policy is PlaintextPolicy.ALLOW else logging.ERROR,
            vocabulary.MESSAGE_UNENCRYPTED,
            queue=queue,
            message_id=message.id,
            encrypted=False,
            policy=policy.value,
        )
        match policy:
            case PlaintextPolicy.ALLOW:
                pass
            case PlaintextPolicy.ALLOW_WITH_ALERT:
                self._alert(message, queue)
            case PlaintextPolicy.REJECT:
                self._counters.add(vocabulary.PLAINTEXT_REFUSED, queue=queue)
                raise UnencryptedMessage(message.id, queue)
            case _:
                assert_never(policy)
        return message

    def _alert(self, message: Message, queue: str) -> None:
        self._counters.add(vocabulary.PLAINTEXT_ALERTS, queue=queue)
        if self._emit is not None:
            self._emit(
                PlaintextAcceptedEvent(
                    message_id=message.id, queue=queue, message_type=message.type
                )
            )

    async def routing(self, delivery: Delivery) -> None:
        if self._guard is not None:
            await self._guard.release(delivery)

    def settled(self, delivery: Delivery, *, is_handled: bool) -> None:
        if self._guard is not None:
            self._guard.settled(delivery, is_handled=is_handled)

    # -- parts -------------------------------------------------------------------------------

    def _cipher(self) -> Any:
        if self._aes is None:
            raise ConfigurationError("Encryption", None, "it is not open; open its app first")
        return self._aes

    def _count(self, name: str, queue: str, *, is_encrypted: bool) -> None:
        series = self._series.get((name, queue, is_encrypted))
        if series is None:
            label = "true" if is_encrypted else "false"
            series = self._counters.series(name, queue=queue, encrypted=label)
            self._series[name, queue, is_encrypted] = series
        series.value += 1


def _load_aes() -> ModuleType:
    try:
        return import_module(".aes", __package__)
    except ImportError as error:
        raise ConfigurationError(
            "Encryption", "cryptography", "is not installed; pip install pumphouse[crypto]"
        ) from error


def _with_rules(rules: Rules, clock: Clock = SYSTEM_CLOCK) -> Encryption:
    made = Encryption.__new__(Encryption)
    made._set_up(rules, clock)
    return made
