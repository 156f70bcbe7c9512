"""Pumphouse on the memory gateway while somebody watches: logs, metrics, traces, and more.

Whatever is watched with is loaded here and not before: "bare" must get its copy of the packages in
front of ours.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..reading import Reading
from ..watching.bare import make_bare_copy

_RUNS = 5


def run(count: int, watch: str = "", body: str = "tick") -> Reading:
    """Measure with everything that `watch` names, separated by spaces.

    A few times, and the cheapest counts: what is looked for is a few per cent, and a neighbour on
    the same machine adds ten times as much, but never takes anything away.
    """
    wanted = watch.split()
    if "bare" in wanted:
        wanted.remove("bare")
        _use_bare_copy()
    from pump import event_loop

    runs = [event_loop.run(_measure(count, wanted, body)) for _ in range(_RUNS)]
    return min(runs, key=lambda reading: reading.cpu_s)


def _use_bare_copy() -> None:
    folder = Path.cwd() / "bare"
    if folder.exists():
        return  # For the warm-up.
    assert "pump" not in sys.modules, "the hooks are loaded already"
    assert make_bare_copy(folder), "no hooks found to cut"
    sys.path.insert(0, str(folder))


async def _measure(count: int, wanted: Sequence[str], body: str) -> Reading:
    from gateways.memory import MemoryGateway

    from ..watching.watchers import WATCHERS
    from .pump_app import Parcel, Tick, measure

    options: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        for each in wanted:
            options |= WATCHERS[each](Path(folder))
        request = Parcel if body == "parcel" else Tick
        return await measure(MemoryGateway(), count, is_batched=True, request=request, **options)
