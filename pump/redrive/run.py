"""Run: a redrive from its snapshot to its end.

| step     | leaves                                     | cut short, the next run        |
|----------|--------------------------------------------|--------------------------------|
| prepare  | snapshot and selection in the run's folder | begins anew, and removes these |
| move     | records, one file a process                | goes on with what is left      |
| finish   | `done.json`                                | takes a new snapshot           |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import Throttled
from ..ports import Gateway
from ..queue_browser import Seen, browse
from .folder import Plan, QueueFolder, RecordedProgress, RedriveCounts, RedriveFolder, lease_for
from .moving import RedriveMover, Task
from .rows import KEY_LENGTH, LedgerRows, SnapshotWriter, is_among, row_of
from .selection import Picture, Selector, entries_in, picture_of


@attrs.frozen(kw_only=True)
class PreparedRun:
    """A run whose selection is made; nothing has been sent yet, or nothing by this process."""

    run: RedriveFolder
    plan: Plan
    picture: Picture
    """What is still to be sent."""
    seen_count: int
    """Dead letters in the snapshot."""
    selected_count: int
    hidden_count: int = 0
    """About how many more the broker has and did not show."""
    is_resumed: bool = False
    lease_s: float = 30.0
    sent_before: Mapping[str, float | None] = attrs.field(factory=dict)

    def task(self, *, rate: float | None, batch: int) -> Task:
        """What a consumer is told to do."""
        return Task(
            queue=self.plan.queue,
            target=self.plan.target,
            folder=self.run.path,
            lease_s=self.lease_s,
            count=self.selected_count,
            sent_before=self.sent_before,
            is_resumed=self.is_resumed,
            rate=rate,
            batch=batch,
        )


class Stopped(Exception):
    """It was told to stop before there was anything to go on with."""


async def prepare(
    gateway: Gateway,
    folder: QueueFolder,
    plan: Plan,
    selector: Selector,
    *,
    stopping: asyncio.Event,
    on_seen: Callable[[int], None] = lambda count: None,
    clock: Clock = SYSTEM_CLOCK,
) -> PreparedRun:
    """Find the run of this plan that was cut short, or take a snapshot and select from it.

    Raises `ConfigurationError` for a predicate that cannot be one, before the queue is touched,
    `QueueNotFound` for either queue, and `Stopped`.
    """
    with _interrupting(selector):
        await asyncio.to_thread(selector.check, plan.where)
    waiting = (await gateway.admin().stats(plan.queue)).visible
    await gateway.admin().stats(plan.target)
    run = await asyncio.to_thread(folder.unfinished, plan)
    is_resumed = run is not None
    if run is None:
        run = await asyncio.to_thread(folder.new_run, plan, clock.time_s())
        try:
            seen = await take_snapshot(
                gateway, plan.queue, run.snapshot, clock=clock, stopping=stopping, on_seen=on_seen
            )
            if seen is None:
                raise Stopped
            with _interrupting(selector):
                await asyncio.to_thread(_begin, run, selector, seen, waiting)
        except BaseException:
            # Nothing was sent: what there is of it is not needed.
            await asyncio.shield(asyncio.to_thread(run.remove))
            raise
    return await asyncio.to_thread(_prepared, folder, run, plan, is_resumed)


async def move(
    gateway: Gateway,
    prepared: PreparedRun,
    task: Task,
    *,
    rows: LedgerRows,
    stopping: asyncio.Event,
    on_moved: Callable[[RedriveCounts], None] = lambda counts: None,
    clock: Clock = SYSTEM_CLOCK,
) -> RedriveMover:
    """Send what is selected, in this process; what it has done, also when it raises, is in the
    record.
    """
    selected, _ = await asyncio.to_thread(entries_in, prepared.run.selection)
    mover = RedriveMover(
        gateway,
        task,
        selected,
        rows=rows,
        stopping=stopping,
        on_progress=on_moved,
        clock=clock,
    )
    await mover.run()
    return mover


@attrs.frozen(kw_only=True)
class Remainder:
    """What the records say of a selection: what is not sent, and what was sent and not removed."""

    unsent: int
    unremoved: int
    """Where a run was killed between a removal and its record, these are gone all the same. What
    is not, is removed by the next run, and never sent again."""

    def __bool__(self) -> bool:
        return bool(self.unsent or self.unremoved)


def left_of(prepared: PreparedRun) -> Remainder:
    """How much of the selection is not done, as the records say. Blocking."""
    selected, count = entries_in(prepared.run.selection)
    known = RecordedProgress()
    known.read(prepared.run.path)
    removed = sum(is_among(entry, selected) for entry in known.removed)
    unremoved = sum(is_among(entry, selected) for entry in known.unremoved)
    return Remainder(unsent=count - removed - unremoved, unremoved=unremoved)


def finish(prepared: PreparedRun, counts: RedriveCounts) -> None:
    """Note the end, and remove what quotes messages; the records stay. Blocking."""
    prepared.run.end(attrs.asdict(counts))
    prepared.run.remove_data()


@contextmanager
def _interrupting(selector: Selector) -> Iterator[None]:
    """A condition may take for ever, and its thread keeps the process: cancelled, end it."""
    try:
        yield
    except asyncio.CancelledError:
        selector.interrupt()
        raise


def _begin(run: RedriveFolder, selector: Selector, seen: int, waiting: int) -> None:
    plan = run.plan()
    assert plan is not None
    selector.select(run.snapshot, plan.where, plan.limit, run.selection)
    _, count = entries_in(run.selection)
    run.begin(
        {
            "seen": seen,
            "selected": count,
            "hidden": max(0, waiting - seen),
            "lease_s": lease_for(seen - count),
        }
    )


def _prepared(folder: QueueFolder, run: RedriveFolder, plan: Plan, is_resumed: bool) -> PreparedRun:
    begun = run.begun()
    known = RecordedProgress()
    known.read(run.path)
    entries = known.sent | known.removed
    # A snapshot that saw no broker's ids has the keys alone.
    done = entries | {entry[:KEY_LENGTH] for entry in entries}
    return PreparedRun(
        run=run,
        plan=plan,
        picture=picture_of(run.selection, but=done),
        seen_count=begun["seen"],
        selected_count=begun["selected"],
        hidden_count=begun["hidden"],
        is_resumed=is_resumed,
        lease_s=begun["lease_s"],
        sent_before=folder.sent_before(run),
    )


# Snapshot: the dead letters as they are now, in a file, and still in their queue.

_ROWS_AT_ONCE = 2_000


async def take_snapshot(
    gateway: Gateway,
    queue: str,
    path: Path,
    *,
    clock: Clock,
    stopping: asyncio.Event,
    on_seen: Callable[[int], None] = lambda count: None,
) -> int | None:
    """Write every dead letter that the queue shows, and return how many; None when it was stopped.

    The file is there only when it is whole. Where the provider cannot be asked, the look counts
    as a delivery of each message.
    """
    writer = await asyncio.to_thread(SnapshotWriter, path)
    rows = _RowWriter(writer, on_seen)
    try:
        async with browse(gateway, queue, clock=clock) as batches:
            try:
                async for batch in batches:
                    await rows.add(batch)
                    if stopping.is_set():
                        break
            except Throttled:
                # SQS shows no more while 120,000 are in flight: what was seen is worked on.
                if not rows.count:
                    raise
        await rows.flush()
    except BaseException:
        await asyncio.to_thread(writer.discard)
        raise
    await asyncio.to_thread(writer.discard if stopping.is_set() else writer.finish)
    return None if stopping.is_set() else rows.count


class _RowWriter:
    """Gathers rows for the writer. A message whose lease was lost meanwhile is seen again."""

    def __init__(self, writer: SnapshotWriter, on_seen: Callable[[int], None]) -> None:
        self._writer = writer
        self._on_seen = on_seen
        self._waiting: list[Seen] = []
        self._known: set[str | int] = set()
        self.count = 0

    async def add(self, batch: Sequence[Seen]) -> None:
        new = [each for each in batch if not self._is_known(each)]
        self._waiting += new
        self.count += len(new)
        self._on_seen(self.count)
        if len(self._waiting) >= _ROWS_AT_ONCE:
            await self.flush()

    async def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            await asyncio.to_thread(_write, self._writer, waiting)

    def _is_known(self, seen: Seen) -> bool:
        if seen.broker_id is None:
            return False
        if seen.broker_id in self._known:
            return True
        self._known.add(seen.broker_id)
        return False


def _write(writer: SnapshotWriter, waiting: Sequence[Seen]) -> None:
    for start in range(0, len(waiting), _ROWS_AT_ONCE):
        writer.write([row_of(each) for each in waiting[start : start + _ROWS_AT_ONCE]])
