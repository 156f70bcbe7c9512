"""Run: a redrive from its snapshot to its end.

| step     | leaves                                     | cut short, the next run        |
|----------|--------------------------------------------|--------------------------------|
| prepare  | snapshot and selection in the run's folder | begins anew, and removes these |
| move     | records, one file a process                | goes on with what is left      |
| finish   | `done.json`                                | takes a new snapshot           |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..ports import Gateway
from .counts import Counts
from .ending import lease_for
from .folder import QueueFolder, RunFolder
from .identity import KEY_LENGTH, is_among
from .moving import Mover, Task
from .plan import Plan
from .record import Known
from .rows import LedgerRows
from .selection import Picture, Selector, entries_in, picture_of
from .snapshot import take_snapshot


@attrs.frozen(kw_only=True)
class Prepared:
    """A run whose selection is made; nothing has been sent yet, or nothing by this process."""

    run: RunFolder
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
) -> Prepared:
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
            # Nothing was sent: nobody needs what there is of it.
            await asyncio.shield(asyncio.to_thread(run.remove))
            raise
    return await asyncio.to_thread(_prepared, folder, run, plan, is_resumed)


async def move(
    gateway: Gateway,
    prepared: Prepared,
    task: Task,
    *,
    rows: LedgerRows,
    stopping: asyncio.Event,
    on_moved: Callable[[Counts], None] = lambda counts: None,
    clock: Clock = SYSTEM_CLOCK,
) -> Mover:
    """Send what is selected, in this process; what it has done, also when it raises, is in the
    record.
    """
    selected, _ = await asyncio.to_thread(entries_in, prepared.run.selection)
    mover = Mover(
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
class Left:
    """What the records say of a selection: what is not sent, and what was sent and not removed."""

    unsent: int
    unremoved: int
    """Where a run was killed between a removal and its record, these are gone all the same. What
    is not, is removed by the next run, and never sent again."""

    def __bool__(self) -> bool:
        return bool(self.unsent or self.unremoved)


def left_of(prepared: Prepared) -> Left:
    """How much of the selection is not done, as the records say. Blocking."""
    selected, count = entries_in(prepared.run.selection)
    known = Known()
    known.read(prepared.run.path)
    removed = sum(is_among(entry, selected) for entry in known.removed)
    unremoved = sum(is_among(entry, selected) for entry in known.unremoved)
    return Left(unsent=count - removed - unremoved, unremoved=unremoved)


def finish(prepared: Prepared, counts: Counts) -> None:
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


def _begin(run: RunFolder, selector: Selector, seen: int, waiting: int) -> None:
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


def _prepared(folder: QueueFolder, run: RunFolder, plan: Plan, is_resumed: bool) -> Prepared:
    begun = run.begun()
    known = Known()
    known.read(run.path)
    entries = known.sent | known.removed
    # A snapshot that saw no broker's ids has the keys alone.
    done = entries | {entry[:KEY_LENGTH] for entry in entries}
    return Prepared(
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
