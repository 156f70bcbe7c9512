"""The mover: takes messages from one queue to another, each wholly or not at all.

A redrive policy moves what a receive found dead; a move task carries on in the background, and
goes on after a restart. A message is in limbo on its way: it is not received twice, and when
its move cannot be written it stays where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from pump.clock import Clock
from pump.errors import StorageFailed

from ..model import QueueId
from .entries import Deleted, Entry, MessagesMoved, TaskEndedEntry
from .queue import Queue
from .record import (
    GONE,
    NO_SOURCE,
    NO_SUCH_QUEUE,
    MoveStatus,
    MoveTask,
    SqsRecord,
    unpack_extra,
    with_receives,
)

# A dead letter whose write failed is tried again after this long, at the next receive.
_RETRY_S = 1.0
# How many messages a task without a rate moves in one write.
_AT_ONCE = 100
# SQS lists the last ten tasks of a queue.
_MAX_TASKS = 10

Write = Callable[[Entry, Callable[[Exception | None], None]], asyncio.Future[None] | None]
Pair = tuple[SqsRecord, int, SqsRecord]


class DeadLetterMover:
    """Moves dead messages to dead-letter queues and runs move tasks."""

    def __init__(
        self,
        clock: Clock,
        find: Callable[[QueueId], Queue | None],
        numbers: Callable[[int], int],
        write: Write,
    ) -> None:
        self._clock = clock
        self._find = find
        self._numbers = numbers
        self._write = write
        self.tasks: dict[QueueId, list[MoveTask]] = {}
        """By source, oldest first."""
        self._running: dict[MoveTask, asyncio.Task[None]] = {}
        self._cancelling: dict[MoveTask, asyncio.Task[None]] = {}

    # Redrive.

    def dead_letter(
        self,
        queue: Queue,
        target: Queue,
        records: Sequence[SqsRecord],
        *,
        has_new_bodies: bool = False,
    ) -> asyncio.Future[None] | None:
        """Move messages in limbo to the dead-letter queue (T5)."""
        first = self._numbers(len(records))
        pairs = [
            (record, target.number, self._dead_letter(record, first + position, queue, target))
            for position, record in enumerate(records)
        ]
        entry = MessagesMoved(pairs, has_new_bodies=has_new_bodies)
        return self._write(entry, partial(self._finish_dead_letters, queue, target, pairs))

    def _dead_letter(self, record: SqsRecord, seq: int, queue: Queue, target: Queue) -> SqsRecord:
        # AWS: a standard queue's message keeps its age, a FIFO queue's starts a new one.
        sent_at_s = self._clock.time_s() if target.state.is_fifo else record.sent_at_s
        source = queue.address.arn
        # AWS counts what a receiver is shown "across all queues", and each queue's limit by itself.
        received = record.receive_count + unpack_extra(record.extra).received_before
        extra = with_receives(record.extra, received)
        return SqsRecord(seq, record.origin, record.body, extra, record.group, source, sent_at_s)

    def _finish_dead_letters(
        self, queue: Queue, target: Queue, pairs: Sequence[Pair], error: Exception | None
    ) -> None:
        if error is not None:
            dead = [record for record, _, _ in pairs]
            queue.state.postpone(dead, until_s=self._clock.now_s() + _RETRY_S)
        else:
            _settle(queue, pairs, lambda number: target)
        queue.notify()

    # Move tasks.

    def outdated(self, source: QueueId) -> list[MoveTask]:
        """The tasks to forget when another one begins."""
        tasks = self.tasks.get(source, [])
        excess = len(tasks) + 1 - _MAX_TASKS
        return [task for task in tasks[: max(0, excess)] if not task.is_active]

    def start(self, task: MoveTask) -> None:
        """Take a task on that is written down."""
        outdated = self.outdated(task.source)
        tasks = [each for each in self.tasks.get(task.source, []) if each not in outdated]
        self.tasks[task.source] = [*tasks, task]
        if task.status is MoveStatus.RUNNING:
            self._begin(task)

    def _begin(self, task: MoveTask) -> None:
        name = f"pumphouse-move-{task.number}"
        self._running[task] = asyncio.create_task(self._run(task), name=name)

    async def cancel(self, task: MoveTask) -> int:
        """End a task; what it has moved stays moved.

        Cancelled itself, it ends the task nevertheless. `StorageFailed` when the end cannot
        be written: the task goes on.
        """
        if task.status is MoveStatus.RUNNING and task in self._running:
            running = self._running.pop(task)
            running.cancel()
            task.status = MoveStatus.CANCELLING
            name = f"pumphouse-cancel-{task.number}"
            cancelling = asyncio.create_task(self._cancel(task, running), name=name)
            cancelling.add_done_callback(lambda done: self._forget_cancelling(task, done))
            self._cancelling[task] = cancelling
        if task in self._cancelling:
            await asyncio.shield(self._cancelling[task])
        return task.moved

    async def _cancel(self, task: MoveTask, running: asyncio.Task[None]) -> None:
        await asyncio.wait([running])
        try:
            await self._end(task, MoveStatus.CANCELLED)
        except StorageFailed:
            if task.is_active and task in self.tasks.get(task.source, []):
                task.status = MoveStatus.RUNNING
                self._begin(task)
            raise

    def _forget_cancelling(self, task: MoveTask, done: asyncio.Task[None]) -> None:
        del self._cancelling[task]
        if not done.cancelled():
            # The client may have hung up, and the error concerns no other.
            done.exception()

    def forget(self, source: QueueId) -> None:
        """Drop the tasks of a queue that is gone; another of its name has nothing to do with
        them.
        """
        for task in self.tasks.pop(source, []):
            running = self._running.pop(task, None)
            if running is not None:
                running.cancel()

    async def aclose(self) -> None:
        """Let go of all tasks; they go on when the file is opened again."""
        if self._cancelling:
            await asyncio.wait(self._cancelling.values())
        running = list(self._running.values())
        self._running.clear()
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running)

    async def _run(self, task: MoveTask) -> None:
        while True:
            try:
                reason = await self._move_some(task)
                if reason is not None:
                    await self._end(
                        task,
                        MoveStatus.FAILED if reason else MoveStatus.COMPLETED,
                        reason or None,
                    )
                    break
            except StorageFailed:
                # The disk may have room again later.
                await self._clock.sleep(_RETRY_S)
                continue
            await self._clock.sleep(0 if task.rate is None else 1.0)
        self._running.pop(task, None)

    async def _move_some(self, task: MoveTask) -> str | None:
        """Move what may be moved at once; return why the task ends, empty for success."""
        source = self._find(task.source)
        if source is None:
            return NO_SUCH_QUEUE
        source.promote()
        at_once = _AT_ONCE if task.rate is None else task.rate
        records = source.state.take_to_limbo(min(at_once, task.to_move - task.moved))
        if not records:
            return ""
        pairs, targets, reason = self._direct(task, records)
        directed = {id(record) for record, _, _ in pairs}
        strays = [record for record in records if id(record) not in directed]
        source.state.restore(strays, now_s=self._clock.now_s())
        if pairs:
            entry = MessagesMoved(pairs, task, task.moved + len(pairs))
            ticket = self._write(entry, partial(self._finish_move, task, source, pairs, targets))
            if ticket is not None:
                await ticket
        source.notify()
        return reason

    def _direct(
        self, task: MoveTask, records: Sequence[SqsRecord]
    ) -> tuple[list[Pair], dict[int, Queue], str | None]:
        """Find out where each message goes; the first that has nowhere to go ends the task."""
        pairs: list[Pair] = []
        targets: dict[int, Queue] = {}
        first = self._numbers(len(records))
        for seq, record in enumerate(records, first):
            address = task.target
            if address is None and record.source is not None:
                address = QueueId.from_arn(record.source)
            if address is None:
                return pairs, targets, NO_SOURCE
            target = self._find(address)
            if target is None:
                return pairs, targets, NO_SUCH_QUEUE
            # AWS: a message that is redriven is a new one, with an id and an age of its own.
            extra, now_s = with_receives(record.extra, 0), self._clock.time_s()
            moved = SqsRecord(seq, seq, record.body, extra, record.group, None, now_s)
            pairs.append((record, target.number, moved))
            targets[target.number] = target
        return pairs, targets, None

    def _finish_move(
        self,
        task: MoveTask,
        source: Queue,
        pairs: Sequence[Pair],
        targets: dict[int, Queue],
        error: Exception | None,
    ) -> None:
        if error is not None:
            source.state.restore([each[0] for each in pairs], now_s=self._clock.now_s())
        else:
            task.moved += len(pairs)
            _settle(source, pairs, targets.__getitem__)
        source.notify()

    async def _end(self, task: MoveTask, status: MoveStatus, reason: str | None = None) -> None:
        def finish(error: Exception | None) -> None:
            if error is None:
                task.status, task.failure_reason = status, reason

        ticket = self._write(TaskEndedEntry(task, status, reason), finish)
        if ticket is not None:
            await ticket


def _settle(queue: Queue, pairs: Sequence[Pair], target_of: Callable[[int], Queue]) -> None:
    """Let messages be where they were written to, unless a purge was faster."""
    arrived: dict[Queue, list[SqsRecord]] = {}
    for record, number, moved in pairs:
        if record.phase != GONE:
            arrived.setdefault(target_of(number), []).append(moved)
    queue.state.remove([record for record, _, _ in pairs])
    for target, records in arrived.items():
        if not target.is_gone:
            target.state.add(records)
            target.notify()


# Upkeep: what queues notice by themselves, written down: dead letters and expiries.

# An expiry whose write failed is tried again after this long.
_UPKEEP_RETRY_S = 5.0


class Upkeep:
    """The upkeep of all queues."""

    def __init__(
        self,
        clock: Clock,
        find: Callable[[QueueId], Queue | None],
        mover: DeadLetterMover,
        write: Write,
    ) -> None:
        self._clock = clock
        self._find = find
        self._mover = mover
        self._write = write
        self._last_move: asyncio.Future[None] | None = None

    def dead_after(self, queue: Queue) -> float:
        """After how many deliveries a message is dead; never without a dead-letter queue."""
        redrive = queue.settings.redrive
        if redrive is None or self._find(redrive.target) is None:
            return inf
        return redrive.max_receive_count

    def dead_letter(self, queue: Queue, records: Sequence[SqsRecord]) -> None:
        """Move what had its last delivery to the dead-letter queue."""
        redrive = queue.settings.redrive
        target = None if redrive is None else self._find(redrive.target)
        assert target is not None, "dead_after looked"
        self._last_move = self._mover.dead_letter(queue, target, records)

    async def wait_for_moves(self) -> None:
        """Return when all moves so far are written, or have failed."""
        if self._last_move is not None:
            await asyncio.wait([self._last_move])

    def expire(self, queue: Queue, records: Sequence[SqsRecord]) -> None:
        """Delete what is past its retention."""

        def finish(error: Exception | None) -> None:
            if error is None:
                queue.state.remove(records)
                queue.state.renew_expiry_hint(self._clock.time_s())
            else:
                queue.state.restore(records, now_s=self._clock.now_s())
                queue.state.expiry_hint_s = self._clock.time_s() + _UPKEEP_RETRY_S
            queue.notify()

        self._write(Deleted(records), finish)
