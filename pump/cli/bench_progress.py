"""The progress of a run: a line on a terminal, and nothing elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..clock import SYSTEM_CLOCK, Clock
from .console import stderr

_LOOK_S = 0.25
"""Seldom enough that drawing is no part of what is measured."""


class Run(Protocol):
    """What is followed."""

    @property
    def total(self) -> int:
        """Messages that are to be sent."""

    @property
    def sent(self) -> int:
        """Messages so far that were sent."""

    @property
    def done(self) -> int:
        """Messages so far that are gone."""


@asynccontextmanager
async def progress_of(
    measurement: Run, *, console: Console | None = None, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[None]:
    """Show how far it is while the block runs."""
    shown = stderr() if console is None else console
    if not shown.is_terminal:
        yield
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TimeElapsedColumn(), console=shown, transient=True, auto_refresh=False
    ) as progress:
        following = asyncio.create_task(_follow(measurement, progress, clock), name="progress")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])


async def _follow(measurement: Run, progress: Progress, clock: Clock) -> None:
    sending = progress.add_task("sent", total=measurement.total)
    handling = progress.add_task("handled", total=measurement.total)
    while True:
        progress.update(sending, completed=measurement.sent)
        progress.update(handling, completed=measurement.done)
        progress.refresh()
        await clock.sleep(_LOOK_S)
