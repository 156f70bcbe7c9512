"""Recorder: writes down now and then how long handlers take, for `pump doctor` to read."""

from __future__ import annotations

from collections.abc import Mapping

from .clock import Clock
from .errors import StorageFailed
from .handler_times import HandlerTimes
from .loop import PumpStats
from .observability import vocabulary
from .observability.log import get_logger
from .stores.handler_times import HandlerTimesFile

_log = get_logger("pump.recorder")
_EVERY_S = 60.0
_PATIENCE_S = 5.0
"""How long a slow disk may keep a pump from ending."""


class Recorder:
    """Keeps one app's record up to date. A record that cannot be written harms nothing."""

    def __init__(
        self, file: HandlerTimesFile, stats: Mapping[str, PumpStats], clock: Clock
    ) -> None:
        self._file = file
        self._stats = stats
        self._clock = clock
        self._written: dict[str, tuple[int, int]] = {}
        self._has_complained = False

    async def run(self) -> None:
        """Write every minute until cancelled, and then once more."""
        try:
            while True:
                await self._clock.sleep(_EVERY_S)
                await self.record()
        finally:
            await self.record()

    async def record(self) -> None:
        """Write what has changed since the last time."""
        times = self._changed()
        if not times:
            return
        try:
            async with self._clock.timeout(_PATIENCE_S):
                await self._file.write(times)
        except (StorageFailed, TimeoutError) as error:
            self._complain(error)
        else:
            self._written |= {name: (each.count, each.lost_count) for name, each in times.items()}

    def _changed(self) -> dict[str, HandlerTimes]:
        now_s = self._clock.time_s()
        times = {
            name: stats.run_times.summary(lost_count=stats.leases_lost, now_s=now_s)
            for name, stats in self._stats.items()
        }
        return {
            name: each
            for name, each in times.items()
            if self._written.get(name, (0, 0)) != (each.count, each.lost_count)
        }

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            _log.warning(
                vocabulary.HANDLER_TIMES_UNRECORDED, path=str(self._file.path), error=repr(error)
            )
