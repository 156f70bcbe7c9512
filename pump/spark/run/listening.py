"""Listening: who is told how a run gets on; a progress bar, for instance."""

from __future__ import annotations

from typing import Protocol

from .slicing import Depth
from .summary import SliceSummary


class Listener(Protocol):
    """Told on the driver's event loop: be quick, and raise nothing."""

    def looked(self, depth: Depth) -> None:
        """The queues were asked."""

    def slice_started(self, number: int, tasks: int) -> None:
        """A job is given to Spark."""

    def slice_ended(self, done: SliceSummary) -> None:
        """It has come to its end."""


class Silent:
    """Listens to nothing."""

    def looked(self, depth: Depth) -> None:
        """Nothing to do."""

    def slice_started(self, number: int, tasks: int) -> None:
        """Nothing to do."""

    def slice_ended(self, done: SliceSummary) -> None:
        """Nothing to do."""
