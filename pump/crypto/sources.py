"""Providers that read their ring from somewhere: the environment, a file, a function.

A ring that was read stays in use until a newer one was read whole: a file that is half written,
or a function that fails, changes nothing, and is logged once. An id that is not in the ring makes
us look again before the message is refused, so keys that were added a moment ago are found.
"""

from __future__ import annotations

import inspect
import os
import stat
import sys
from collections.abc import Awaitable, Callable
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
from .errors import KeyNotFound, KeyUnavailable
from .key_text import parse_ring
from .keys import Key, KeyProvider, KeyRing
from .refreshing import RefreshedKeys

_log = get_logger("pump.crypto")
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
    process's and root, and one in a folder that everybody may write to; one that its group may use
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
        # To open a pipe would wait for whoever writes to it, for ever, and with it the process.
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
        """Where everybody may write, anybody can put another file in its place. In a folder with
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
    """Seals with the first provider's key and opens with any one's: to move between providers.

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
