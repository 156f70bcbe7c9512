"""Providers that read their ring from somewhere: the environment, a file, a function.

A ring that was read stays in use until a newer one was read whole: a file that is half written,
or a function that fails, changes nothing, and is logged once. An id that is not in the ring makes
us look again before the message is refused, so keys that were added a moment ago are found.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import binascii
import inspect
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, PumpError
from ..observability import vocabulary
from ..observability.log import get_logger
from ..tasks import in_thread
from .errors import KeyNotFound, KeyUnavailable, logged, shown
from .keys import KEY_SIZE, Key, KeyProvider, KeyRing

# The text of a key ring, as it stands in a file or an environment variable.
#
#     # The first key encrypts; all of them decrypt.
#     2026-02:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
#     2026-01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
#
# One key an entry: its id, a colon, its 32 bytes in base64 (the URL-safe alphabet and missing
# padding are fine). Entries are on lines of their own or separated by commas; lines that start with
# `#` are comments. An id has no comma and no white space in it. No error repeats any of it: where
# an entry is wrong, what looks like an id may be the key.

_HIDDEN = "…"
_ADVICE = f"write it as id:base64, with the {KEY_SIZE} bytes that `openssl rand -base64 32` makes"


def parse_ring(text: str, *, source: str) -> KeyRing:
    """Read a ring; `source` names where the text is from. Raises `ConfigurationError`."""
    keys = [
        _key(entry, f"{source}, key {number}") for number, entry in enumerate(_entries(text), 1)
    ]
    if not keys:
        raise ConfigurationError(source, "", f"holds no key; {_ADVICE}")
    numbers: dict[str, int] = {}
    for number, key in enumerate(keys, 1):
        first = numbers.setdefault(key.id, number)
        if first != number:
            raise ConfigurationError(
                f"{source}, key {number}",
                _HIDDEN,
                f"has the id of key {first}; give each key its own",
            )
    return KeyRing(keys[0], retired=keys[1:])


def _entries(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.lstrip().startswith("#"):
            yield from filter(None, map(str.strip, line.split(",")))


def _key(entry: str, field: str) -> Key:
    id_, colon, encoded = (part.strip() for part in entry.rpartition(":"))
    if not colon or not id_ or any(character.isspace() for character in id_):
        raise ConfigurationError(field, _HIDDEN, f"has no id; {_ADVICE}")
    try:
        material = _decoded(encoded)
    except (binascii.Error, ValueError):
        raise ConfigurationError(field, _HIDDEN, f"is not base64; {_ADVICE}") from None
    if len(material) != KEY_SIZE:
        raise ConfigurationError(field, _HIDDEN, f"has {len(material)} bytes; {_ADVICE}")
    return Key(id_, material)


def _decoded(encoded: str) -> bytes:
    plain = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


# A key ring that is read again from time to time, without a message waiting for it.

_log = get_logger("pump.crypto")
_MIN_GAP_S = 1.0
"""Between two looks: messages with invented key ids must not keep a vault busy."""


class RefreshedKeys(abc.ABC):
    """A `KeyProvider` over a ring that `_read` brings.

    While a new ring is read the one before is used. Keys that are in both rings stay what
    they are; keys that are gone are wiped.
    """

    def __init__(self, name: str, *, every: timedelta | None, clock: Clock) -> None:
        if every is not None and every <= timedelta(0):
            raise ConfigurationError(f"{name}, every", every, "use a timedelta above zero")
        self.name = name
        self._every_s = None if every is None else every.total_seconds()
        self._clock = clock
        self._ring: KeyRing | None = None
        self._user_count = 0
        self._turn = asyncio.Lock()
        self._look_count = 0
        self._looked_at_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._fault: PumpError | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @abc.abstractmethod
    async def _read(self, *, is_first: bool) -> KeyRing | None:
        """The ring as it is now, None when it is unchanged. Raises `ConfigurationError`, or
        `KeyUnavailable`.
        """

    async def load(self) -> None:
        async with self._turn:
            if self._ring is None:
                self._note_look()
                self._ring = await self._first_ring()
        self._user_count += 1

    async def active(self) -> Key:
        ring = self._loaded()
        self._look_when_due()
        return await ring.active()

    async def find(self, key_id: str) -> Key:
        key = self._loaded().get(key_id)
        if key is not None:
            self._look_when_due()
            return key
        if self._every_s is not None:
            await self._look_anew()
            key = self._loaded().get(key_id)
        if key is not None:
            return key
        if self._fault is not None:
            raise KeyUnavailable(key_id, f"{self.name} cannot be read: {self._fault}")
        raise KeyNotFound(key_id)

    async def aclose(self) -> None:
        self._user_count = max(0, self._user_count - 1)
        if self._user_count:
            return
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.wipe()
        # A lock belongs to one loop, and an application's provider may outlive several.
        self._turn = asyncio.Lock()
        self._fault = None

    async def _first_ring(self) -> KeyRing:
        ring = await self._read(is_first=True)
        if ring is None or any(key.is_wiped for key in ring.keys):
            raise ConfigurationError(
                self.name, None, "gave no ring, or one whose keys were wiped; give a new ring"
            )
        return ring

    def _loaded(self) -> KeyRing:
        if self._ring is None:
            raise KeyUnavailable(self.name, "it is not loaded; open the app first")
        return self._ring

    def _look_when_due(self) -> None:
        if self._every_s is None or self._clock.now_s() < self._looked_at_s + self._every_s:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_anew(), name="pumphouse-keys")

    async def _look_anew(self) -> None:
        """Return after a look that began after this call; many callers share one."""
        before = self._look_count
        async with self._turn:
            if self._look_count > before or self._ring is None:
                return
            await self._clock.sleep(self._looked_at_s + _MIN_GAP_S - self._clock.now_s())
            self._note_look()
            try:
                ring = await self._read(is_first=False)
                if ring is not None and not self._user_count:
                    ring.wipe()  # Closed meanwhile: nothing else would.
                elif ring is not None:
                    self._adopt(ring)
            except PumpError as fault:
                self._note_fault(fault)
            else:
                self._fault = None

    def _note_look(self) -> None:
        self._look_count += 1
        self._looked_at_s = self._clock.now_s()

    def _note_fault(self, fault: PumpError) -> None:
        if self._fault is None:
            _log.error(vocabulary.KEYS_UNREAD, source=self.name, error=str(fault))
        self._fault = fault

    def _adopt(self, new: KeyRing) -> None:
        old = self._loaded()
        for key in new.keys:
            known = old.get(key.id)
            if known is not None and not known.has_material_of(key):
                _wipe_all_but(old, new)
                raise ConfigurationError(
                    self.name, shown(key.id), "another key has this id now; give it a new id"
                )
        # A key that we know keeps its object, and with that its cipher and its count.
        keys = {key.id: old.get(key.id) or key for key in new.keys}
        active = keys.pop(new.active_id)
        self._ring = KeyRing(active, retired=keys.values())
        _wipe_all_but(self._ring, old)
        _wipe_all_but(self._ring, new)
        _log.info(
            vocabulary.KEYS_CHANGED,
            source=self.name,
            active=logged(active.id),
            key_count=len(self._ring.ids),
        )


def _wipe_all_but(kept: KeyRing, ring: KeyRing) -> None:
    for key in ring.keys:
        if kept.get(key.id) is not key:
            key.wipe()


_MAX_FILE_SIZE = 1 << 20
_MAX_OWNERS = 10_000
"""Keys whose owner a `FallbackKeys` remembers: KMS makes a new one every few minutes."""


class EnvironmentKeys(RefreshedKeys):
    """The ring in an environment variable; `key_text` says how it is written there."""

    def __init__(self, name: str) -> None:
        # A process's environment is what it was at its start, so once is enough.
        super().__init__(f"environment variable {name}", every=None, clock=SYSTEM_CLOCK)
        self._variable = name

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvironmentKeys, (self._variable,)

    async def _read(self, *, is_first: bool) -> KeyRing | None:
        # The application names the variable, and only an app that opens looks at it.
        text = os.environ.get(self._variable)
        if text is None:
            raise ConfigurationError(
                self.name, None, "is not set; it holds the keys, as id:base64,id:base64"
            )
        return parse_ring(text, source=self.name)


class KeyFile(RefreshedKeys):
    """The ring in a file; `key_text` says how it is written there.

    Looked at every `every`, and when a message names a key that is not in the ring, so a rotation
    needs no restart. Replace the file as a whole (write another, rename it). A file that others
    than its owner and group may read, or write, is refused, as is one of another user than this
    process's and root, and one in a folder that all users may write to; one that its group may use
    is warned of.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: timedelta = timedelta(seconds=10),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(f"key file {os.fspath(path)}", every=every, clock=clock)
        self._path = Path(path)
        self._every = every
        self._seen: tuple[int, int, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(KeyFile, self._path, every=self._every), ()

    async def _read(self, *, is_first: bool) -> KeyRing | None:
        if is_first:
            self._seen = None
        try:
            return await in_thread(self._read_if_changed)
        except OSError as error:
            raise ConfigurationError(
                self.name, error.strerror, "make it a file that this process may read"
            ) from error

    def _read_if_changed(self) -> KeyRing | None:
        # To open a pipe would wait for its writer, for ever, and with it the process.
        if self._path.exists() and not self._path.is_file():
            raise ConfigurationError(
                self.name, "no regular file", "use a file, or KeyRing.from_callable for a pipe"
            )
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            # A file that was read and then refused is still wrong, though it has not changed.
            if seen == self._seen and self._fault is None:
                return None
            self._check_access(status)
            # What is no UTF-8 is no base64 either; a UnicodeDecodeError would carry the keys.
            text = file.read(_MAX_FILE_SIZE).decode("utf-8", "replace")
        ring = parse_ring(text, source=self.name)
        self._seen = seen
        return ring

    def _check_access(self, status: os.stat_result) -> None:
        if sys.platform == "win32":
            return  # Windows keeps its permissions elsewhere.
        mode = status.st_mode
        shown_mode = stat.filemode(mode)
        if status.st_uid not in (0, os.geteuid()):
            raise ConfigurationError(
                self.name,
                f"owned by user {status.st_uid}",
                f"another user could change it; chown it to user {os.geteuid()}, who reads it",
            )
        self._check_folders()
        if mode & stat.S_IRWXO:
            raise ConfigurationError(
                self.name,
                shown_mode,
                "everybody on this machine may use it; chmod 600 it (Kubernetes: defaultMode 0400)",
            )
        if mode & stat.S_IRWXG:
            _log.warning(
                vocabulary.KEYS_EXPOSED,
                source=self.name,
                mode=shown_mode,
                remedy="its group may use it; chmod 600 it unless that is meant",
            )

    def _check_folders(self) -> None:
        """Where all users may write, each can put another file in its place. In a folder with
        the sticky bit (/tmp, a secret's volume of Kubernetes) only the file's owner can.
        """
        path = self._path.absolute()
        for folder in dict.fromkeys((*path.parents, *path.resolve().parents)):
            mode = folder.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise ConfigurationError(
                    self.name,
                    f"{folder} {stat.filemode(mode)}",
                    "everybody may put another file in its place; chmod o-w the folder",
                )


class CallableKeys(RefreshedKeys):
    """The ring that `fetch` returns, as from a vault; it may be a coroutine function.

    Called when the app opens, every `every`, and when a message names a key that is not in the
    ring. A plain function is called in a thread. The rings it returns become ours to wipe.
    """

    def __init__(
        self,
        fetch: Callable[[], KeyRing | Awaitable[KeyRing]],
        *,
        every: timedelta = timedelta(minutes=5),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        name = getattr(fetch, "__qualname__", type(fetch).__qualname__)
        super().__init__(f"key function {name}", every=every, clock=clock)
        self._fetch = fetch
        self._every = every

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(CallableKeys, self._fetch, every=self._every), ()

    async def _read(self, *, is_first: bool) -> KeyRing | None:
        try:
            ring = await self._call()
        except PumpError:
            raise
        except Exception as error:  # broad: the function is the user's code
            # Not its text, which may hold anything.
            raise ConfigurationError(
                self.name, type(error).__name__, "it failed; see the error above"
            ) from error
        if not isinstance(ring, KeyRing):
            raise ConfigurationError(
                self.name, type(ring).__name__, "it must return a KeyRing(active, retired=[…])"
            )
        return ring

    async def _call(self) -> object:
        if inspect.iscoroutinefunction(self._fetch):
            return await self._fetch()
        answer = await in_thread(self._fetch)
        return await answer if inspect.isawaitable(answer) else answer


class FallbackKeys:
    """Encrypts with the first provider's key and decrypts with any: to move between providers.

    Whose a key is, is remembered: a provider that has to look at its file, or call a function,
    before it can say that a key is not its own is not asked for every message of another's.
    """

    def __init__(self, first: KeyProvider, *others: KeyProvider) -> None:
        self._providers = (first, *others)
        self._owners: dict[str, KeyProvider] = {}

    def __repr__(self) -> str:
        return f"FallbackKeys{self._providers!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return FallbackKeys, self._providers

    async def load(self) -> None:
        loaded: list[KeyProvider] = []
        try:
            for provider in self._providers:
                await provider.load()
                loaded.append(provider)
        except BaseException:
            for provider in loaded:
                await provider.aclose()
            raise

    async def active(self) -> Key:
        return await self._providers[0].active()

    async def find(self, key_id: str) -> Key:
        unavailable: KeyUnavailable | None = None
        for provider in self._in_turn(key_id):
            try:
                key = await provider.find(key_id)
            except KeyNotFound:
                self._owners.pop(key_id, None)
            except KeyUnavailable as error:
                # Another one may have it; only if none has, it may yet be this one's.
                unavailable = unavailable or error
            else:
                if len(self._owners) >= _MAX_OWNERS:
                    self._owners.clear()
                self._owners[key_id] = provider
                return key
        raise unavailable or KeyNotFound(key_id)

    def _in_turn(self, key_id: str) -> list[KeyProvider]:
        """All of them, the one first that had this key before."""
        owner = self._owners.get(key_id)
        return sorted(self._providers, key=lambda each: each is not owner)

    async def aclose(self) -> None:
        self._owners.clear()
        async with AsyncExitStack() as stack:
            # Each is closed, whatever becomes of the others.
            for provider in reversed(self._providers):
                stack.push_async_callback(provider.aclose)
