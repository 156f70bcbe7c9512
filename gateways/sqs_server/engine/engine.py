"""The engine: the asynchronous shell over all queues of one server.

It reads the clock, lets the state machine decide, has it written down, and finishes in the
store's callback. Everything between two awaits is atomic, which is all the locking there is:
an engine belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from pump import headers
from pump.clock import Clock, Timer

from ..._sqlite.group_commit import Done
from ..model import Accepted, NewMessage, QueueCounts, QueueId, Received, SqsQueueSettings
from .entries import (
    Configured,
    Counted,
    Created,
    Deleted,
    Entry,
    MessagesSent,
    NullStore,
    QueuePurged,
    QueueRemoved,
    Reserved,
    Store,
    StoredContent,
    Tasked,
)
from .mover import DeadLetterMover, Upkeep
from .queue import Queue, ReceiveTerms
from .record import (
    GONE,
    PLAIN,
    FileIdentity,
    MoveTask,
    NewMessages,
    ReceiptProblem,
    SqsRecord,
    TakenBatch,
    TimedHold,
    attributes_of,
    corrupted_extra,
    handle_of,
    receipt_of,
    sequence_number,
    unpack_extra,
)

_CORRUPTED = "Corrupted"
"""The reason of a message that is not what was sent any more."""
# A name stays taken for this long after its queue was deleted, where AWS's strictness is wanted.
_RECENT_S = 60.0


class SqsEngine:
    """Queues with SQS's semantics. What changes something is as durable as the store when it
    returns, and has changed nothing when it raises `StorageFailed`.
    """

    def __init__(self, clock: Clock, store: Store | None = None) -> None:
        self.clock = clock
        self.queues: dict[QueueId, Queue] = {}
        self.identity = FileIdentity.new()
        self._store: Store = NullStore() if store is None else store
        write = self._store.write
        self.numbers = NumberSource(write)
        self.mover = DeadLetterMover(clock, self.find, self.numbers.take, write)
        self._upkeep = Upkeep(clock, self.find, self.mover, write)
        self._counting = LazyCounts(clock, self._write_counts)
        self._being_made: dict[QueueId, Future[Queue]] = {}
        self._deleted_at_s: OrderedDict[QueueId, float] = OrderedDict()
        """In the order of the times: a look, or an addition, drops what is old."""
        self._is_closed = True

    async def open(self) -> None:
        """Recover what the store has (T4): in flight is what consumers may still have of a
        server that crashed, and all counts are kept.

        `StorageFailed` when it is damaged, not ours or used by another server.
        """
        await self._store.open(self)
        self._is_closed = False

    async def aclose(self, *, frees: bool = True) -> None:
        """Return waiting receives empty, write what is left, and close the store.

        A clean stop `frees` what is in flight, unless the store is told to keep it (T14).
        """
        if self._is_closed:
            return
        self._is_closed = True
        for queue in self.queues.values():
            queue.close()
        await self.mover.aclose()
        self._counting.write_now()
        await self._store.aclose(frees=frees)

    # Messages.

    async def send(self, queue: Queue, messages: Sequence[NewMessage]) -> list[Accepted]:
        """Store messages; a duplicate is told what its original was told."""
        if not self._store.has_room(messages):
            await self._store.require_room(messages)
        clock, state = self.clock, queue.state
        first = self.numbers.take(len(messages))
        now_s, time_s = clock.now_s(), clock.time_s()
        arrival = state.prepare(messages, first_seq=first, now_s=now_s, time_s=time_s)
        entry = MessagesSent(queue.number, arrival, time_s - now_s)
        await self._written(entry, partial(self._finish_send, queue, arrival))
        ids = self.identity.message_ids(arrival.numbers)
        if not state.is_fifo:
            return [Accepted(id=id) for id in ids]
        return [
            Accepted(id=id, sequence_number=sequence_number(number))
            for id, number in zip(ids, arrival.numbers, strict=True)
        ]

    async def receive(
        self,
        queue: Queue,
        *,
        max_count: int,
        wait_s: float,
        visibility_s: int,
        attempt_id: str | None = None,
        is_inside: bool = False,
    ) -> list[Received]:
        """Hide messages for `visibility_s` and return them, waiting up to `wait_s` for the first.

        A crash of the server ends no receive but those of a receiver that `is_inside` it.
        Cancelled, or when its count cannot be written, nothing is hidden and nothing counted.
        Raises `SqsError` (OverLimit) when too many messages of a standard queue are in flight.
        """
        ask = ReceiveTerms(max_count, visibility_s, attempt_id)
        if queue.waiting_count:
            # What has fallen due in this moment belongs to earlier waiters.
            queue.notify()
        taken, has_dead = queue.serve(ask)
        while taken is None and has_dead:
            # What stood behind the dead messages may be free in a moment.
            await self._upkeep.wait_for_moves()
            taken, has_dead = queue.serve(ask)
        if taken is None and wait_s > 0 and not self._is_closed and not queue.is_leaving:
            taken = await queue.wait(ask, wait_s)
        if taken is None:
            return []
        if is_inside:
            taken.hold.holder = None
        return await self._hand_out(queue, taken)

    async def delete(self, queue: Queue, receipts: Sequence[str]) -> list[ReceiptProblem | None]:
        """Delete messages by their receipts, and say for each what was wrong with it.

        On a standard queue every receipt a message ever had deletes it, also when it is visible
        or in flight again; FIFO queues know EXPIRED ones.
        """
        queue.promote()
        deletion = queue.receipts.to_delete(receipts)
        if deletion.records:
            finish = partial(self._finish_delete, queue, deletion.records)
            await self._written(Deleted(deletion.records), finish)
        return deletion.problems

    async def change_visibility(
        self, queue: Queue, changes: Sequence[tuple[str, int]]
    ) -> list[ReceiptProblem | None]:
        """Hide messages for other times, counted from now; zero shows them at once.

        On a standard queue every receipt a message ever had will do, and hides it once more when
        it has become visible, as on AWS.
        """
        now_s = queue.promote()
        records, problems = queue.receipts.change(changes, now_s=now_s)
        self._store.note_changes(records, self.clock.time_s() - now_s)
        queue.notify()
        return problems

    def counts(self, queue: Queue) -> QueueCounts:
        """Count a queue's messages."""
        queue.promote()
        return queue.state.counts(self.clock.time_s())

    # Queues.

    def find(self, address: QueueId) -> Queue | None:
        """The queue of that name, None when there is none or it is being deleted."""
        queue = self.queues.get(address)
        return None if queue is None or queue.is_leaving else queue

    async def create(self, settings: SqsQueueSettings) -> Queue:
        """Make a queue; one that exists is returned as it is."""
        address = settings.address
        queue = self.find(address)
        if queue is not None:
            return queue
        being_made = self._being_made.get(address)
        if being_made is None:
            being_made = self._begin_queue(settings)
        return await asyncio.shield(being_made)

    async def configure(self, queue: Queue, settings: SqsQueueSettings) -> None:
        """Give a queue other settings; messages in it follow them from now on."""

        def finish(error: Exception | None) -> None:
            if error is None:
                now_s, time_s = self.clock.now_s(), self.clock.time_s()
                queue.state.reconfigure(settings, now_s=now_s, time_s=time_s)
                queue.notify()

        delays = queue.state.delays_under(settings, time_s=self.clock.time_s())
        await self._written(Configured(queue.number, settings, delays), finish)

    async def delete_queue(self, queue: Queue) -> None:
        """Delete a queue and all its messages; waiting receives return empty."""
        if queue.is_leaving:
            return
        queue.is_leaving = True
        entry = QueueRemoved(self._content(queue), queue.address)
        await self._written(entry, partial(self._finish_removal, queue))

    def was_deleted_recently(self, address: QueueId) -> bool:
        """Whether AWS would not let the name be used again yet."""
        self._forget_deleted()
        return address in self._deleted_at_s

    async def purge(self, queue: Queue) -> int:
        """Remove every message, in flight or not, and every de-duplication id; count them."""
        counts: list[int] = []
        # What is sent from now on stays, and so must its de-duplication ids.
        below = self.numbers.next

        def finish(error: Exception | None) -> None:
            if error is None:
                counts.append(queue.state.clear(below))

        await self._written(QueuePurged(self._content(queue)), finish)
        return counts[0]

    # Move tasks.

    async def start_move(
        self, source: Queue, target: Queue | None, *, rate: int | None = None
    ) -> MoveTask:
        """Begin to move the visible messages of a queue to another, or to where each came from.

        It goes on after a restart. Whether one may run already is the caller's to decide.
        """
        number = self.numbers.take(1)
        task = MoveTask(
            number=number,
            handle=handle_of(self.identity.message_id(number)),
            source=source.address,
            target=None if target is None else target.address,
            rate=rate,
            to_move=self.counts(source).visible,
            started_at_ms=int(self.clock.time_s() * 1000),
        )

        def finish(error: Exception | None) -> None:
            if error is None:
                self.mover.start(task)

        await self._written(Tasked(task, self.mover.outdated(task.source)), finish)
        return task

    def moves(self, source: Queue) -> list[MoveTask]:
        """The tasks from a queue, newest first."""
        return self.mover.tasks.get(source.address, [])[::-1]

    async def cancel_move(self, task: MoveTask) -> int:
        """End a task, and return how many messages it has moved."""
        return await self.mover.cancel(task)

    # What the store asks for.

    def receives(self) -> Iterator[TimedHold]:
        """All receives that have messages in flight."""
        for queue in self.queues.values():
            yield from queue.state.timers.receives()

    def admit(self, number: int, settings: SqsQueueSettings) -> Queue:
        """Make a queue in memory only."""
        queue = Queue(number, settings, self.clock, self.identity, self._upkeep)
        self.queues[settings.address] = queue
        return queue

    def dead_letter_queue_of(self, number: int) -> Queue | None:
        """The dead-letter queue of the queue of that number, None when there is none."""
        queue = self._numbered(number)
        redrive = None if queue is None else queue.settings.redrive
        return None if redrive is None else self.find(redrive.target)

    def dead_letter_corrupted(self, number: int, record: SqsRecord) -> tuple[str, str]:
        """Move a message that is not what was sent to the dead-letter queue, with its reason, and
        return the names of both queues.
        """
        queue, target = self._numbered(number), self.dead_letter_queue_of(number)
        assert queue is not None, "ask first"
        assert target is not None, "ask first"
        time_s = self.clock.time_s()
        told = {
            headers.ORIGINAL_TOPIC: queue.address.name,
            headers.REJECTION_REASON: _CORRUPTED,
            headers.REJECTION_DETAIL: "its checksum is not the one it was stored with",
            headers.REJECTION_TIMESTAMP: datetime.fromtimestamp(time_s, UTC).isoformat(),
        }
        record.extra = corrupted_extra(record.extra, told)
        record.body = record.body.encode(errors="surrogateescape").decode(errors="replace")
        queue.state.add([record])
        queue.state.send_to_limbo([record])
        self.mover.dead_letter(queue, target, [record], has_new_bodies=True)
        return queue.address.name, target.address.name

    def _numbered(self, number: int) -> Queue | None:
        return next((each for each in self.queues.values() if each.number == number), None)

    # Writing, and finishing what is written.

    async def _written(self, entry: Entry, done: Done) -> None:
        ticket = self._store.write(entry, done)
        if ticket is not None:
            await ticket

    def _finish_send(self, queue: Queue, arrival: NewMessages, error: Exception | None) -> None:
        if error is not None:
            queue.state.withdraw(arrival)
            return
        records = arrival.records
        if records:
            self.numbers.settled = records[-1].seq
        if not queue.is_gone:
            queue.state.add(records, arrival.delays)
            queue.notify()

    async def _hand_out(self, queue: Queue, taken: TakenBatch) -> list[Received]:
        if queue.settings.redrive is None:
            self._counting.note(taken.records)
        elif not taken.is_repeated:
            await self._count(queue, taken)
        self._note_receive(taken)
        return deliver(
            taken, queue=queue.number, identity=self.identity, is_fifo=queue.state.is_fifo
        )

    def _note_receive(self, taken: TakenBatch) -> None:
        hold = taken.hold
        if hold.holder is None:
            return
        # An older receipt may have deleted or changed some while their count was written.
        held = [record for record in taken.records if record.hold is hold]
        if held:
            self._store.note_receive(hold, held, self.clock.time_s() - self.clock.now_s())

    async def _count(self, queue: Queue, taken: TakenBatch) -> None:
        """Have the counts written that decide when a message is dead."""

        def finish(error: Exception | None) -> None:
            if error is not None:
                queue.revoke(taken)

        try:
            await self._written(Counted(taken.records), finish)
        except BaseException:
            queue.revoke(taken)
            self._counting.note(taken.records)
            raise

    def _finish_delete(
        self, queue: Queue, records: Sequence[SqsRecord], error: Exception | None
    ) -> None:
        if error is None:
            queue.state.remove(records)
        else:
            queue.state.restore(records, now_s=self.clock.now_s())
        queue.notify()

    def _write_counts(self, records: Sequence[SqsRecord]) -> None:
        def finish(error: Exception | None) -> None:
            if error is not None and not self._is_closed:
                self._counting.note(records)

        self._store.write(Counted(records), finish)

    def _begin_queue(self, settings: SqsQueueSettings) -> Future[Queue]:
        made: Future[Queue] = asyncio.get_running_loop().create_future()
        number = self.numbers.take(1)

        def finish(error: Exception | None) -> None:
            self._being_made.pop(settings.address, None)
            if error is None:
                made.set_result(self.admit(number, settings))
            else:
                made.set_exception(error)
                made.exception()

        self._being_made[settings.address] = made
        self._store.write(Created(number, settings), finish)
        return made

    def _finish_removal(self, queue: Queue, error: Exception | None) -> None:
        if error is not None:
            queue.is_leaving = False
            return
        queue.is_gone = True
        if self.queues.get(queue.address) is queue:
            del self.queues[queue.address]
        self._forget_deleted()
        self._deleted_at_s[queue.address] = self.clock.now_s()
        self._deleted_at_s.move_to_end(queue.address)
        self.mover.forget(queue.address)
        queue.state.clear(self.numbers.next)
        queue.close()

    def _forget_deleted(self) -> None:
        deleted, before_s = self._deleted_at_s, self.clock.now_s() - _RECENT_S
        while deleted and deleted[next(iter(deleted))] <= before_s:
            deleted.popitem(last=False)

    def _content(self, queue: Queue) -> StoredContent:
        return StoredContent(queue.number, queue.state.records.values(), self.numbers.settled)


# Delivery: what a receive took, as the receiver is shown it.


def deliver(
    taken: TakenBatch, *, queue: int, identity: FileIdentity, is_fifo: bool
) -> list[Received]:
    """Every message that was taken, with a receipt for this very receive."""
    head = identity.receipt_head(queue)
    ids = identity.message_ids([record.origin for record in taken.records])
    packed, extra, attributes = None, PLAIN, attributes_of(PLAIN)
    received: list[Received] = []
    for record, id, receive_count in zip(taken.records, ids, taken.receive_counts, strict=True):
        seq = record.seq
        # What names only the sender is one object for all messages of that sender.
        if record.extra is not packed:
            packed = record.extra
            extra = unpack_extra(packed)
            attributes = attributes_of(extra)
        received.append(
            Received(
                id=id,
                receipt=receipt_of(head, seq, receive_count),
                body=record.body,
                attributes=attributes,
                trace_header=extra.trace_header,
                sender=extra.sender,
                sent_at_s=record.sent_at_s,
                first_received_at_s=record.first_at_s,
                receive_count=receive_count + extra.received_before,
                group=record.group,
                deduplication_id=extra.deduplication_id,
                sequence_number=sequence_number(seq) if is_fifo else None,
                dead_letter_source=record.source,
            )
        )
    return received


# Counting: receive counts that need not be durable at once, written soon and together.
#
# Where no redrive policy looks at them, the counts are only told, so a receive does not wait for
# the disk. A message that is deleted within the moment leaves nothing to write.

# How much of its counting a crash may cost.
_LINGER_S = 0.1


class LazyCounts:
    """Messages whose count on disk is behind."""

    def __init__(self, clock: Clock, write: Callable[[Sequence[SqsRecord]], None]) -> None:
        self._clock = clock
        self._write = write
        self._behind: list[Sequence[SqsRecord]] = []
        self._timer: Timer | None = None

    def note(self, records: Sequence[SqsRecord]) -> None:
        """Have the counts written soon."""
        self._behind.append(records)
        if self._timer is None:
            self._timer = self._clock.call_later(_LINGER_S, self.write_now)

    def write_now(self) -> None:
        """Hand over what is still there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        behind, self._behind = self._behind, []
        left = {r.seq: r for records in behind for r in records if r.phase != GONE}
        if left:
            self._write(list(left.values()))


# Numbers: of queues, messages and tasks, each given once in the life of a file.

# Numbers are reserved on disk by blocks: none is given twice, whatever a crash forgets.
_BLOCK = 100_000


class NumberSource:
    """Counts, and keeps on disk a number that the count stays below."""

    def __init__(self, write: Callable[[Entry, Done], object]) -> None:
        self._write = write
        self.settled = 0
        """A number that all messages which are being written lie above: entries are written in
        the order in which their numbers were taken, so any that is done with will do.
        """
        self._next = 1
        self._reserved_below = 1

    def continue_from(self, number: int) -> None:
        """Give out no number below this one."""
        self._next = self._reserved_below = number
        self.settled = number - 1

    @property
    def next(self) -> int:
        """The number that is given out next."""
        return self._next

    def take(self, count: int) -> int:
        """The first of so many numbers in a row."""
        first = self._next
        self._next += count
        if self._next > self._reserved_below:
            # Written before whatever uses the numbers, and when it fails so does that.
            self._reserved_below = self._next + _BLOCK
            self._write(Reserved(self._reserved_below), self._finish)
        return first

    def _finish(self, error: Exception | None) -> None:
        if error is not None:
            self._reserved_below = 0
