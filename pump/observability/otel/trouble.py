"""Trouble: what goes wrong inside telemetry is said, now and then, and changes nothing else."""

from __future__ import annotations

from ...clock import SYSTEM_CLOCK, Clock
from .. import vocabulary
from ..log import get_logger

_log = get_logger("pump.telemetry")
_SILENCE_S = 60.0


class Trouble:
    """Says at most once a minute that telemetry failed: it may fail for every message."""

    def __init__(self) -> None:
        self.clock: Clock = SYSTEM_CLOCK
        self._said_at_s: float | None = None

    def note(self, operation: str, error: Exception) -> None:
        """Telemetry could not do this; whatever it was about goes on."""
        now_s = self.clock.now_s()
        if self._said_at_s is None or now_s - self._said_at_s >= _SILENCE_S:
            self._said_at_s = now_s
            error_type = type(error).__name__
            _log.warning(vocabulary.TELEMETRY_FAILED, operation=operation, error_type=error_type)
