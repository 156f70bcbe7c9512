"""Redrive task: one consumer of the dead-letter queue, in a Python worker of Spark's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import attrs

from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError, PumpError
from ..gateway_url import gateway_from_url
from ..redrive.counts import Counts
from ..redrive.folder import RunFolder
from ..redrive.moving import Mover, Task
from ..redrive.rows import LedgerRows
from ..redrive.selection import entries_in
from ..stores.ledger.parquet_ledger import ParquetLedger

_LOOK_S = 0.5


@attrs.frozen(kw_only=True)
class Errand:
    """What a task is told. Survives the way to another machine."""

    gateway: str = attrs.field(repr=False)
    task: Task
    ledger: ParquetLedger | None = None
    prepare: Callable[[], object] | None = None
    """Called first in the task's process, such as to set up logging."""


@attrs.frozen(kw_only=True)
class ErrandEnd:
    """What became of one task, or of all of them."""

    counts: Counts = Counts()
    is_full: bool = False
    """It ended because the broker gives no more while so many are held."""
    failures: tuple[Exception, ...] = ()

    def __add__(self, other: ErrandEnd) -> ErrandEnd:
        return ErrandEnd(
            counts=self.counts + other.counts,
            is_full=self.is_full or other.is_full,
            failures=self.failures + other.failures,
        )


def run_errand(errand: Errand, partition: Iterable[int]) -> Iterator[ErrandEnd]:
    """Run one task, and yield how it ended.

    Errors of ours are returned: Spark would try again in vain, and the driver says them in one
    line. What is raised is a defect, or a machine's.
    """
    if errand.prepare is not None:
        errand.prepare()
    for _ in partition:
        yield asyncio.run(_run(errand))


async def _run(errand: Errand) -> ErrandEnd:
    folder = RunFolder(errand.task.folder)
    if not await asyncio.to_thread(folder.path.is_dir):
        remedy = "a task's machine does not see this folder; name one that all of them share"
        unseen = ConfigurationError("--run", str(folder.path), remedy)
        return ErrandEnd(failures=(unseen,))
    selected, _ = await asyncio.to_thread(entries_in, folder.selection)
    gateway = gateway_from_url(errand.gateway, SYSTEM_CLOCK)
    rows = LedgerRows(errand.ledger, gateway.capabilities.gateway)
    stopping = asyncio.Event()
    mover = Mover(gateway, errand.task, selected, rows=rows, stopping=stopping)
    watching = asyncio.create_task(_watch(folder, stopping), name="stop marker")
    failures: tuple[Exception, ...] = ()
    try:
        await gateway.open()
        async with rows:
            await mover.run()
    except PumpError as error:
        failures = (error,)
    finally:
        watching.cancel()
        await gateway.aclose()
    return ErrandEnd(counts=mover.counts, is_full=mover.is_full, failures=failures)


async def _watch(folder: RunFolder, stopping: asyncio.Event) -> None:
    while not await asyncio.to_thread(folder.stop.exists):
        await SYSTEM_CLOCK.sleep(_LOOK_S)
    stopping.set()
