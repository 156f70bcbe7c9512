"""What encrypting or decrypting a message can raise; each error is its own, and silent about keys.

`CryptoError`s are about the message: it is rejected, still encrypted. `KeyUnavailable` is about the
moment: the message is retried. Key ids come from outside, so they are shown cut and escaped.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import attrs

from ..errors import CryptoError, PumpError

_MAX_SHOWN = 64


def logged(key_id: str) -> str:
    """A key id fit for a field of a log: short, printable ASCII on one line."""
    cut = key_id[:_MAX_SHOWN].encode("unicode_escape").decode("ascii")
    return f"{cut}…" if len(key_id) > _MAX_SHOWN else cut


def shown(key_id: str) -> str:
    """A key id fit for a sentence: the same in quotes, with how much is missing."""
    more = len(key_id) - _MAX_SHOWN
    quoted = f"'{logged(key_id)}'"
    return f"{quoted} (and {more} characters more)" if more > 0 else quoted


@attrs.frozen
class AuthenticationFailed(CryptoError):
    """The message is not what was encrypted; nothing of it was decrypted."""

    key_id: str

    def __str__(self) -> str:
        return (
            f"the message does not match its tag (key {shown(self.key_id)}): its body, id, group "
            f"or correlation id was changed on the way, or another key was given the same id; "
            f"find out who can write to the queue, and compare the key rings of both sides"
        )


@attrs.frozen
class MessageExpired(CryptoError):
    """The message says of itself that it is older than it may be; it was not decrypted."""

    encrypted_at: datetime
    max_age: timedelta

    def __str__(self) -> str:
        return (
            f"the message was encrypted at {self.encrypted_at.isoformat()} and is older than "
            f"max_age={self.max_age}; send it anew, or allow more (Encryption.max_age)"
        )


@attrs.frozen
class MessageFromFuture(CryptoError):
    """It was encrypted later than now, so its age cannot be known; it was not decrypted."""

    encrypted_at: datetime
    tolerance: timedelta

    def __str__(self) -> str:
        return (
            f"the message was encrypted at {self.encrypted_at.isoformat()}, more than "
            f"{self.tolerance} from now; set the clocks of both sides, or allow more "
            f"(Encryption.clock_tolerance)"
        )


@attrs.frozen
class KeyNotFound(CryptoError):
    """No provider has the key that the message was encrypted with."""

    key_id: str

    def __str__(self) -> str:
        return (
            f"the key {shown(self.key_id)} is not known here; check the key rotation (a retired "
            f"key must stay in the ring until its last message was read) and the configuration "
            f"of the key provider"
        )


@attrs.frozen
class NonceReused(CryptoError):
    """This very envelope was accepted before: a copy of it was sent."""

    message_id: str

    def __str__(self) -> str:
        return (
            f"the nonce of message {self.message_id!r} was seen before; the message is a replay, "
            f"or a copy of one that was handled, and is not handled again"
        )


@attrs.frozen
class UnsupportedVersion(CryptoError):
    """The envelope has a version that this release does not know."""

    version: int

    def __str__(self) -> str:
        return (
            f"the envelope has version {self.version}, and only versions 1 and 2 are read here, "
            f"or what Encryption.oldest_version leaves of them; update Pumphouse on this side "
            f"first, then on the sender's"
        )


@attrs.frozen
class SealedForAnotherQueue(CryptoError):
    """The message was encrypted for one queue and arrived from another."""

    message_id: str
    sealed_for: str
    queue: str

    def __str__(self) -> str:
        return (
            f"message {self.message_id!r} was encrypted for queue {self.sealed_for!r} and arrived "
            f"from {self.queue!r}; where that is meant, as in a dead-letter queue, name the first "
            f"in Encryption.also_from"
        )


@attrs.frozen
class UnencryptedMessage(CryptoError):
    """A plaintext message arrived where only encrypted ones are accepted."""

    message_id: str
    queue: str

    def __str__(self) -> str:
        return (
            f"message {self.message_id!r} of queue {self.queue!r} is not encrypted, and must be; "
            f"encrypt it at its sender, or accept plaintext for a while "
            f"(Encryption.plaintext=PlaintextPolicy.ALLOW)"
        )


@attrs.frozen
class MalformedEnvelope(CryptoError):
    """The body is marked as encrypted and is no whole envelope."""

    detail: str

    def __str__(self) -> str:
        return (
            f"the body starts like an envelope and is none: {self.detail}; it was cut or changed "
            f"on the way, or it is plaintext that starts with QRE1"
        )


@attrs.frozen
class PlaintextLooksSealed(CryptoError):
    """A message that is to go out as plaintext starts with the mark of encrypted ones."""

    message_id: str

    def __str__(self) -> str:
        return (
            f"message {self.message_id!r} was not sent: its body starts with QRE1, the mark of "
            f"encrypted messages, and every receiver would refuse it; turn encryption on, or "
            f"encode the body in another way"
        )


@attrs.frozen
class KeyUnavailable(PumpError):
    """The key cannot be had at the moment. The message itself is not to blame: it is retried."""

    key_id: str
    detail: str

    def __str__(self) -> str:
        return (
            f"the key {shown(self.key_id)} cannot be had at the moment: {self.detail}; "
            f"what needs it is tried again"
        )
