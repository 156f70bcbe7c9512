"""Payload encryption: AES-256-GCM around any message body, on any gateway.

`App(encryption=Encryption(KeyRing.from_file("keys")))` is all an application says. Names are
loaded when they are first used, and the `cryptography` library when an app with keys opens.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..stores.nonces import MemoryNonces, SqliteNonces
    from ..stores.postgres_nonces import PostgresNonces
    from .encryption import Encryption, NonceTracking, PlaintextPolicy
    from .errors import (
        AuthenticationFailed,
        KeyNotFound,
        KeyUnavailable,
        MalformedEnvelope,
        MessageExpired,
        MessageFromFuture,
        NonceReused,
        PlaintextLooksSealed,
        SealedForAnotherQueue,
        UnencryptedMessage,
        UnsupportedVersion,
    )
    from .keys import Key, KeyProvider, KeyRing
    from .kms import KmsKeys, KmsOptions
    from .sources import CallableKeys, EnvironmentKeys, FallbackKeys, KeyFile

__all__ = [
    "AuthenticationFailed",
    "CallableKeys",
    "Encryption",
    "EnvironmentKeys",
    "FallbackKeys",
    "Key",
    "KeyFile",
    "KeyNotFound",
    "KeyProvider",
    "KeyRing",
    "KeyUnavailable",
    "KmsKeys",
    "KmsOptions",
    "MalformedEnvelope",
    "MemoryNonces",
    "MessageExpired",
    "MessageFromFuture",
    "NonceReused",
    "NonceTracking",
    "PlaintextLooksSealed",
    "PlaintextPolicy",
    "PostgresNonces",
    "SealedForAnotherQueue",
    "SqliteNonces",
    "UnencryptedMessage",
    "UnsupportedVersion",
]

_HOMES = {
    "CallableKeys": "crypto.sources",
    "Encryption": "crypto.encryption",
    "EnvironmentKeys": "crypto.sources",
    "FallbackKeys": "crypto.sources",
    "Key": "crypto.keys",
    "KeyFile": "crypto.sources",
    "KeyProvider": "crypto.keys",
    "KeyRing": "crypto.keys",
    "KmsKeys": "crypto.kms",
    "KmsOptions": "crypto.kms",
    "MemoryNonces": "stores.nonces",
    "NonceTracking": "crypto.encryption",
    "PlaintextPolicy": "crypto.encryption",
    "PostgresNonces": "stores.postgres_nonces",
    "SqliteNonces": "stores.nonces",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'pump.crypto' has no attribute {name!r}")
        home = _HOMES.get(name, "crypto.errors")
        value = getattr(import_module(f"..{home}", __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
