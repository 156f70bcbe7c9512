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
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Any, assert_never

from msgspec.structs import replace

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, CryptoError
from ..events import Event, PlaintextAcceptedEvent
from ..message import Delivery, Message
from ..observability import vocabulary
from ..observability.counters import Counter, Counters
from ..observability.log import get_logger
from ..ports import MAGIC
from .envelope import Envelope, associated_data, make_header, parse
from .errors import (
    KeyNotFound,
    PlaintextLooksSealed,
    UnencryptedMessage,
    logged,
)
from .keys import Key, KeyProvider
from .rules import NonceGuard, NonceTracking, PlaintextPolicy, Rules

_log = get_logger("pump.crypto")
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
