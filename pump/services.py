"""Services: what every part of an app is given to work with."""

from __future__ import annotations

import attrs

from .clock import SYSTEM_CLOCK, Clock
from .observability.telemetry import Telemetry
from .ports import PayloadEncryption


@attrs.frozen(kw_only=True, eq=False)
class Services:
    """One for an app, handed on as it is."""

    clock: Clock = SYSTEM_CLOCK
    telemetry: Telemetry | None = None
    """Measures and traces; None without telemetry."""
    encryption: PayloadEncryption | None = None
    """Encrypts payloads; None when nothing does."""
