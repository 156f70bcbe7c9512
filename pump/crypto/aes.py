"""AES-256-GCM, by the `cryptography` library; the only module that imports it.

Nonces are 96 random bits. Under one key, by all processes together, no more than 2³² messages may
be encrypted so (NIST SP 800-38D, 8.3): past that, two equal nonces are no longer improbable enough,
and two messages under one nonce give away the key's authentication. One process cannot count the
others, so it speaks up at a sixteenth. Tags are verified inside the library, in constant time.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..observability import vocabulary
from ..observability.log import get_logger
from .envelope import NONCE_SIZE, Envelope
from .errors import AuthenticationFailed, logged
from .keys import Key

_log = get_logger("pump.crypto")
MAX_MESSAGES: Final = 2**32
WARN_AT: Final = MAX_MESSAGES // 16


def new_nonce() -> bytes:
    """A nonce that was never used before, as far as randomness can promise."""
    return os.urandom(NONCE_SIZE)


def encrypt(key: Key, plaintext: bytes, *, nonce: bytes, associated: bytes) -> bytes:
    """Ciphertext and tag."""
    key.encrypted_count += 1
    if key.encrypted_count == WARN_AT:
        _log.warning(
            vocabulary.KEY_WORN,
            key_id=logged(key.id),
            sealed=key.encrypted_count,
            remedy="rotate to a new key: one key encrypts 2^32 messages at most, on all machines",
        )
    return key.cipher(AESGCM).encrypt(nonce, plaintext, associated)


def decrypt(key: Key, envelope: Envelope, *, associated: bytes) -> bytes:
    """The plaintext, or `AuthenticationFailed` and nothing of it."""
    try:
        return key.cipher(AESGCM).decrypt(envelope.nonce, envelope.ciphertext, associated)
    except InvalidTag:
        raise AuthenticationFailed(envelope.key_id) from None
