"""Process count: how many processes `--processes` means."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

import click

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""What a container may use, where the kernel has cgroups of version 2."""


def process_count(text: str | int) -> int:
    """A number of 1 or more, or `auto` (or 0) for as many as this process may use cores."""
    words = str(text).strip().lower()
    if words == "auto":
        return usable_cores()
    if not words.isascii() or not words.isdecimal():
        raise click.BadParameter(f"{text!r} is not a whole number; write 4, or auto for all cores")
    return int(words) or usable_cores()


def usable_cores() -> int:
    """The cores that this process may run on, or fewer when it is allowed less time than that."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota = quota_in(_QUOTA.read_text(encoding="ascii"))
    except (OSError, ValueError):
        quota = None
    return cores if quota is None else max(1, min(cores, ceil(quota)))


def quota_in(text: str) -> float | None:
    """Of a `cpu.max`, how many cores' time it allows; None for no limit."""
    allowed, period = text.split()
    return None if allowed == "max" else int(allowed) / int(period)
