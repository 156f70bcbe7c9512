"""The machine a run was measured on, as far as the system says."""

from __future__ import annotations

import os
import platform

from .report import Machine


def load_average() -> float | None:
    """Of the last minute; None where the system keeps none."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def machine_now(load_before: float | None) -> Machine:
    """The machine after a run before which its load was this."""
    return Machine(
        cores=_cores(),
        python=platform.python_version(),
        load_before=load_before,
        load_after=load_average(),
    )


def _cores() -> int:
    # A container may be allowed fewer than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
