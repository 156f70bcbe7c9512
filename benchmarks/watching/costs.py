"""What watching costs, from readings. Pure."""

from __future__ import annotations

from ..reading import Reading

OFF, OFF_LARGE = "watched-off", "watched-off-1k"


def baseline_of(name: str) -> str:
    """What a watched pump is compared with: the same messages, and nobody watching."""
    return OFF_LARGE if name.endswith("-1k") else OFF


def added_us(watched: Reading, off: Reading) -> float:
    """Processor time a message that watching adds."""
    return watched.cpu_us - off.cpu_us


def dearer(watched: Reading, off: Reading) -> float:
    """How many times the processor time a message."""
    return watched.cpu_us / off.cpu_us
