"""Errors of runs on Spark."""

from __future__ import annotations

import attrs

from ...errors import PumpError


@attrs.frozen
class SliceFailed(PumpError):
    """Spark gave a slice up. What its tasks held comes again when its leases end."""

    detail: str

    def __str__(self) -> str:
        return f"Spark gave up a slice: {self.detail}; its messages come again, so run it again"


@attrs.frozen
class TaskFailed(PumpError):
    """A task broke by an error that is not one of ours; said here in words, as its class may be
    known in the task only.
    """

    detail: str
    trace: str = ""

    def __str__(self) -> str:
        return f"a task failed: {self.detail}"
