"""Cluster: where the tasks of a slice run."""

from __future__ import annotations

from typing import Protocol

from .plan import TaskPlan
from .summary import TaskSummary


class Cluster(Protocol):
    """Where tasks run."""

    async def slots(self) -> int:
        """How many tasks run at once, at the moment."""

    @property
    def is_one_machine(self) -> bool:
        """Whether every task has the driver's own disk and working folder."""

    async def run(self, plan: TaskPlan, tasks: int) -> list[TaskSummary]:
        """Run so many tasks to their end. Raises `SliceFailed`. Cancelled, it kills them."""
