"""`pump local` with very many messages in a queue."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..reading import Reading
from ..servers.pending import run_pending
from ..servers.running import pump_local


def run(count: int) -> Reading:
    return run_pending(partial(pump_local, Path("data")), count)
