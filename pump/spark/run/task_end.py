"""Task end: when a task has done its part. Pure."""

from __future__ import annotations

import attrs

from .summary import TaskEnd

QUIET_S = 0.2
"""Nothing came or went for this long: then it is worth asking whether the queues are empty."""
SILENT_S = 5.0
"""Nothing came for this long, and a receive came back empty, whatever the estimate says."""
SPEECHLESS_S = 60.0
"""Nothing came for this long, and no receive came back at all: somebody else may do better."""
GRACE_S = 30.0
"""How long what is in hand may take at the end of a slice; then the rest is handed back."""


@attrs.frozen(kw_only=True)
class TaskState:
    """What is known of a running task."""

    is_stop_asked: bool = False
    has_quota: bool = True
    """Whether more may be received."""
    has_time: bool = True
    in_hand: int = 0
    quiet_s: float = 0.0
    """How long nothing came or went."""
    empty_looks: int = 0
    """Receives since then that came back without a message."""
    ready: int | None = None
    """What could be received, when that is known."""
    in_flight: int = 0
    """What is said to be in other hands then; a receive may bring it all the same."""


def task_end(state: TaskState) -> TaskEnd | None:
    """Why the task is to receive nothing more; None to go on."""
    if state.is_stop_asked:
        return TaskEnd.STOPPED
    if not state.has_time:
        return TaskEnd.TIME
    if not state.has_quota:
        return TaskEnd.MESSAGES
    if state.in_hand or state.quiet_s < QUIET_S:
        return None
    silent_s = SILENT_S if state.empty_looks else SPEECHLESS_S
    is_empty = state.ready == 0 and (state.empty_looks > 0 or not state.in_flight)
    return TaskEnd.EMPTY if is_empty or state.quiet_s >= silent_s else None
