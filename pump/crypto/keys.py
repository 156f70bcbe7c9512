"""Keys: 32 bytes with a name, rings of them, and where rings come from.

What Python cannot wipe: the bytes a key was made from (a `bytes` object, the text of a file or
an environment variable, a reply of KMS) stay in memory until the allocator reuses it, and so may
whatever the operating system has swapped out. `wipe` zeroes our copy and lets go of the cipher,
whose own copy belongs to OpenSSL.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError
from .envelope import MAX_KEY_ID_SIZE
from .errors import KeyNotFound, KeyUnavailable, shown

if TYPE_CHECKING:
    from .sources import CallableKeys, EnvironmentKeys, KeyFile

KEY_SIZE: Final = 32
_HIDDEN = "…"
_Cipher = TypeVar("_Cipher")


class KeyProvider(Protocol):
    """Where keys come from. Keys may be held until the next `await`, no longer."""

    async def load(self) -> None:
        """Have the keys at hand. Raises `ConfigurationError` when it cannot."""

    async def active(self) -> Key:
        """The key that encrypts from now on. Raises `KeyUnavailable`."""

    async def find(self, key_id: str) -> Key:
        """The key of that id, active or retired. Raises `KeyNotFound`, or `KeyUnavailable` when
        that cannot be known at the moment.
        """

    async def aclose(self) -> None:
        """Wipe what was loaded; each `load` needs one."""


class Key:
    """A name and 32 bytes for AES-256; the bytes are shown nowhere and cannot be pickled."""

    __slots__ = ("__weakref__", "_cipher", "_id", "_id_bytes", "_material", "encrypted_count")

    def __init__(self, id: str, material: bytes | bytearray | memoryview) -> None:
        self._id = id
        self._id_bytes = _checked_id(id)
        if not isinstance(material, bytes | bytearray | memoryview):
            raise ConfigurationError("Key.material", _HIDDEN, f"give it as {KEY_SIZE} bytes")
        self._material = bytearray(material)
        if len(self._material) != KEY_SIZE:
            length = len(self._material)
            self.wipe()
            raise ConfigurationError(
                "Key.material", _HIDDEN, f"AES-256 takes {KEY_SIZE} bytes, and this has {length}"
            )
        self._cipher: Any = None
        self.encrypted_count = 0
        """How many messages this process has encrypted with it."""

    @classmethod
    def generate(cls, id: str) -> Key:
        """A new key of the operating system's random bytes."""
        return cls(id, os.urandom(KEY_SIZE))

    @property
    def id(self) -> str:
        """Its name, which travels in every envelope and is no secret."""
        return self._id

    @property
    def id_bytes(self) -> bytes:
        """Its name as it stands in an envelope."""
        return self._id_bytes

    @property
    def is_wiped(self) -> bool:
        """Whether its bytes are gone."""
        return not self._material

    def cipher(self, make: Callable[[bytearray], _Cipher]) -> _Cipher:
        """The cipher of this key, made at its first use."""
        if self._cipher is None:
            if not self._material:
                raise KeyUnavailable(self._id, "it was wiped when its ring was closed")
            self._cipher = make(self._material)
        found: _Cipher = self._cipher
        return found

    def has_material_of(self, other: Key) -> bool:
        """Whether two keys are the same, found out in constant time."""
        return hmac.compare_digest(self._material, other._material)

    def wipe(self) -> None:
        """Zero the bytes and forget them; the key cannot be used any more. May be called twice."""
        for position in range(len(self._material)):
            self._material[position] = 0
        self._material = bytearray()
        self._cipher = None

    def __repr__(self) -> str:
        return f"Key({shown(self._id)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a key is not pickled: let the other process load it "
            "(KeyRing.from_file, KeyRing.from_environment, KmsKeys)"
        )


class KeyRing:
    """The key that encrypts, and those that still decrypt. A `KeyProvider` of keys made in code.

    It may be changed while messages are encrypted and decrypted. Closing it (with the app that uses
    it) wipes its keys; an app that is opened again, as in tests, says `wipe_on_close=False` and
    calls `wipe` itself.
    """

    def __init__(
        self, active: Key, *, retired: Iterable[Key] = (), wipe_on_close: bool = True
    ) -> None:
        keys = (active, *retired)
        if not all(isinstance(key, Key) for key in keys):
            raise ConfigurationError("KeyRing", _HIDDEN, "give it keys: Key(id, material)")
        self._keys = {key.id: key for key in keys}
        if len(self._keys) < len(keys):
            raise ConfigurationError(
                "KeyRing", self.ids, "has two keys of one id; give each key its own"
            )
        self._active = active
        self._wipe_on_close = wipe_on_close
        self._user_count = 0

    @staticmethod
    def from_environment(name: str) -> EnvironmentKeys:
        """The keys in an environment variable, read when the app opens."""
        from .sources import EnvironmentKeys

        return EnvironmentKeys(name)

    @staticmethod
    def from_file(path: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> KeyFile:
        """The keys in a file, read when the app opens and again whenever it changes."""
        from .sources import KeyFile

        return KeyFile(path, clock=clock)

    @staticmethod
    def from_callable(
        fetch: Callable[[], KeyRing | Awaitable[KeyRing]], *, clock: Clock = SYSTEM_CLOCK
    ) -> CallableKeys:
        """The keys that a function returns as a ring, called again every few minutes."""
        from .sources import CallableKeys

        return CallableKeys(fetch, clock=clock)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys, retired ones too."""
        return tuple(self._keys.values())

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys."""
        return tuple(self._keys)

    @property
    def active_id(self) -> str:
        """The id of the key that encrypts."""
        return self._active.id

    def get(self, key_id: str) -> Key | None:
        """The key of that id."""
        return self._keys.get(key_id)

    def add(self, key: Key) -> None:
        """Open with this key too. To rotate, add the new key on every receiver first."""
        known = self._keys.get(key.id)
        if known is not None and known is not key:
            raise ConfigurationError(
                "KeyRing.add", shown(key.id), "the ring has another key of that id; use a new id"
            )
        self._keys = {**self._keys, key.id: key}

    def rotate(self, key: Key) -> None:
        """Encrypt with this key from now on; the one before is retired and still decrypts."""
        self.add(key)
        self._active = key

    def remove(self, key_id: str) -> None:
        """Wipe a retired key; what it encrypted cannot be decrypted here any more."""
        if key_id == self._active.id:
            raise ConfigurationError(
                "KeyRing.remove", shown(key_id), "is the active key; rotate to another one first"
            )
        keys = dict(self._keys)
        removed = keys.pop(key_id, None)
        self._keys = keys
        if removed is not None:
            removed.wipe()

    def wipe(self) -> None:
        """Wipe every key; the ring is of no use afterwards."""
        for key in self._keys.values():
            key.wipe()

    async def load(self) -> None:
        if self._active.is_wiped:
            raise ConfigurationError(
                "KeyRing",
                self.ids,
                "its keys were wiped when it was closed; make a new ring, load it from a file or "
                "the environment, or say wipe_on_close=False",
            )
        self._user_count += 1

    async def active(self) -> Key:
        return self._active

    async def find(self, key_id: str) -> Key:
        key = self._keys.get(key_id)
        if key is None:
            raise KeyNotFound(key_id)
        return key

    async def aclose(self) -> None:
        # Several apps may share a ring: the last one turns off the light.
        self._user_count = max(0, self._user_count - 1)
        if self._user_count == 0 and self._wipe_on_close:
            self.wipe()

    def __repr__(self) -> str:
        retired = ", ".join(shown(key_id) for key_id in self._keys if key_id != self._active.id)
        return f"KeyRing(active={shown(self._active.id)}, retired=[{retired}])"


def _checked_id(id: object) -> bytes:
    # The value is not shown: with the two arguments swapped it is a key, not an id.
    if not isinstance(id, str) or not id:
        raise ConfigurationError("Key.id", _HIDDEN, "give each key a name")
    try:
        encoded = id.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigurationError("Key.id", _HIDDEN, "use characters that UTF-8 has") from None
    if len(encoded) > MAX_KEY_ID_SIZE:
        raise ConfigurationError("Key.id", _HIDDEN, f"use at most {MAX_KEY_ID_SIZE} bytes")
    return encoded
