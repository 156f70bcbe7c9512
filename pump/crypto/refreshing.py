"""A key ring that is read again from time to time, without anybody waiting for it."""

from __future__ import annotations

import abc
import asyncio
from datetime import timedelta

from ..clock import Clock
from ..errors import ConfigurationError, PumpError
from ..observability import vocabulary
from ..observability.log import get_logger
from .errors import KeyNotFound, KeyUnavailable, logged, shown
from .keys import Key, KeyRing

_log = get_logger("pump.crypto")
_MIN_GAP_S = 1.0
"""Between two looks: messages with invented key ids must not keep a vault busy."""


class RefreshedKeys(abc.ABC):
    """A `KeyProvider` over a ring that `_read` brings.

    While a new ring is read the one before seals and opens. Keys that are in both rings stay what
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
                    ring.wipe()  # Closed meanwhile: nobody else would.
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
