"""Moving: one consumer of the dead-letter queue, that sends what is selected.

| a dead letter is | it is                                                        |
|------------------|--------------------------------------------------------------|
| recorded as sent | removed                                                      |
| selected         | sent, recorded, removed                                      |
| neither          | held, so that it does not come again; handed back at the end |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from pathlib import Path

import attrs

from ..capabilities import Capabilities
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    GatewayError,
    PumpError,
    QueueNotFound,
    SendFailed,
    StorageFailed,
    Throttled,
    UnsupportedOperation,
)
from ..leased_reader import LeasedReader
from ..message import Delivery
from ..observability.log import get_logger
from ..outcome import ACK
from ..ports import Gateway, ProducerPort
from ..retrying import TRIES, is_passing, pause
from .folder import RecordedProgress, RedriveCounts, RedriveRecord, Silence, is_over
from .rows import KEY_LENGTH, LedgerRows, entry_of, is_among, redriven


class DeadLetterFate(Enum):
    """What is to be done with a dead letter."""

    REMOVE = auto()
    SEND = auto()
    HOLD = auto()


def fate_of(*, is_sent: bool, is_selected: bool) -> DeadLetterFate:
    """Decide. What was sent is never sent again, also when it is not selected this time."""
    if is_sent:
        return DeadLetterFate.REMOVE
    return DeadLetterFate.SEND if is_selected else DeadLetterFate.HOLD


@attrs.frozen(kw_only=True)
class Task:
    """What one consumer is to do. Survives the way to another process."""

    queue: str
    target: str
    folder: Path
    """The run's own folder."""
    lease_s: float
    count: int
    """Dead letters that were selected."""
    sent_before: Mapping[str, float | None] = attrs.field(factory=dict)
    """Entries that other runs have sent and not removed, with the moments they recorded."""
    is_resumed: bool = False
    rate: float | None = None
    """Messages a second."""
    batch: int = 100
    """The most that is sent between two records, and so the most that a crash can repeat."""


class RedriveMover:
    """Moves until nothing is left, or it is told to stop. `counts` tells how far it came."""

    def __init__(
        self,
        gateway: Gateway,
        task: Task,
        selected: Mapping[str, int],
        *,
        rows: LedgerRows,
        stopping: asyncio.Event,
        on_progress: Callable[[RedriveCounts], None] = lambda counts: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._gateway = gateway
        self._task = task
        self._selected = selected
        self._chosen = Chosen(selected)
        self._rows = rows
        self._stopping = stopping
        self._on_progress = on_progress
        self._clock = clock
        self._pace = Pace(task.rate, clock)
        self._known = RecordedProgress()
        self._left = task.count
        self._looks = 0
        self._last_s = 0.0
        self.counts = RedriveCounts()
        self.is_full = False
        """It ended because the broker gives no more while so many are held."""

    async def run(self) -> None:
        """Move; whatever happens, what was not sent is handed back."""
        task, gateway = self._task, self._gateway
        await asyncio.to_thread(self._known.read, task.folder)
        self._chosen.note(self._known.take_started())
        record = await asyncio.to_thread(RedriveRecord, task.folder)
        producer = gateway.producer(task.target)
        sender = RedriveSender(producer, task.target, record, self._clock)
        sender.doubt(self._known.in_doubt)
        lease = timedelta(seconds=task.lease_s)
        leased = LeasedReader(gateway, task.queue, lease=lease, clock=self._clock, log=_log)
        reader = DeadLetterReader(leased, gateway.capabilities, batch=task.batch, clock=self._clock)
        try:
            async with leased:
                await self._move(reader, sender, record)
                self._count(held=len(leased))
        finally:
            self._count(lost_leases=leased.lost_count)
            await producer.aclose()
            record.close()

    async def _move(
        self, reader: DeadLetterReader, sender: RedriveSender, record: RedriveRecord
    ) -> None:
        self._last_s = self._clock.now_s()
        while not self._stopping.is_set() and not await self._is_over(reader, record):
            received = await reader.receive()
            self._looks = 0 if received else self._looks + 1
            if not received:
                continue
            self._last_s = self._clock.now_s()
            # Another task may have sent it, and lost its lease before it could remove it.
            await self._read_others(record)
            await self._take(received, reader, sender, record)

    async def _is_over(self, reader: DeadLetterReader, record: RedriveRecord) -> bool:
        left = self._recount()
        if left > 0 and self._looks:
            await self._read_others(record)
            left = self._recount()
        self.is_full = reader.is_full
        if reader.is_full:
            return True
        silence = Silence(look_count=self._looks)
        if left > 0 and self._looks > 1:
            silence = Silence(
                look_count=self._looks,
                since_s=self._clock.now_s() - self._last_s,
                held_elsewhere=await self._held_elsewhere(len(reader.leased)),
            )
        task = self._task
        return is_over(left, silence, lease_s=task.lease_s, is_resumed=task.is_resumed)

    def _recount(self) -> int:
        """How many are left to be removed, as far as this process knows."""
        gone = self._known.take_fresh()
        self._left -= sum(is_among(entry, self._selected) for entry in gone)
        return self._left

    async def _held_elsewhere(self, held_count: int) -> int | None:
        try:
            stats = await self._gateway.admin().stats(self._task.queue)
        except (GatewayError, UnsupportedOperation):
            return None
        return max(0, stats.in_flight - held_count)

    async def _take(
        self,
        received: Sequence[Delivery],
        reader: DeadLetterReader,
        sender: RedriveSender,
        record: RedriveRecord,
    ) -> None:
        fates = [self._fate(each) for each in received]
        by_fate = {
            fate: [d for d, its in zip(received, fates, strict=True) if its is fate]
            for fate in DeadLetterFate
        }
        await self._remove(by_fate[DeadLetterFate.REMOVE], reader, record)
        for batch in batches(
            by_fate[DeadLetterFate.SEND], self._pace.most_at_once(self._task.batch)
        ):
            if not await self._pace.wait_for(len(batch), self._stopping):
                return
            await self._send(batch, reader, sender, record)

    def _fate(self, delivery: Delivery) -> DeadLetterFate:
        entry = entry_of(delivery)
        return fate_of(
            is_sent=entry in self._known.sent or entry in self._task.sent_before,
            is_selected=self._chosen.has(entry),
        )

    async def _read_others(self, record: RedriveRecord) -> None:
        await asyncio.to_thread(self._known.read, self._task.folder, but=record.path)
        self._chosen.note(self._known.take_started())

    async def _send(
        self,
        batch: Sequence[Delivery],
        reader: DeadLetterReader,
        sender: RedriveSender,
        record: RedriveRecord,
    ) -> None:
        sent = await sender.send(batch, holds=reader.leased.holds, stopping=self._stopping)
        for delivery, at_s in sent.accepted.items():
            self._known.note_sent([entry_of(delivery)], at_s)
        refused = [entry_of(delivery) for delivery, _ in sent.refused]
        self._known.note_refused(refused)
        if refused:
            await asyncio.to_thread(record.refused, refused)
        for delivery, error in sent.refused:
            self._count(refused=1, first_refusal=f"{delivery.message.id}: {error}")
        self._count(sent=len(sent.accepted), repeated=sent.repeated_count)
        await self._remove(list(sent.accepted), reader, record)

    async def _remove(
        self, deliveries: Sequence[Delivery], reader: DeadLetterReader, record: RedriveRecord
    ) -> None:
        task = self._task
        if not deliveries:
            return
        await self._rows.write([(each, self._sent_at_s(each)) for each in deliveries], task.target)
        removal = await reader.remove(deliveries)
        removed = [entry_of(each) for each in removal.gone]
        self._known.note_removed(removed)
        await asyncio.to_thread(record.removed, removed)
        self._count(removed=len(removed))
        self._on_progress(self.counts)
        if removal.error is not None:
            raise removal.error

    def _sent_at_s(self, delivery: Delivery) -> float | None:
        entry = entry_of(delivery)
        at_s = self._known.sent_at_s(entry)
        return self._task.sent_before.get(entry) if at_s is None else at_s

    def _count(self, **more: int | str) -> None:
        self.counts += RedriveCounts(**more)  # type: ignore[arg-type]


def batches(deliveries: Sequence[Delivery], most: int) -> list[list[Delivery]]:
    """Batches in order, in which no message id comes twice: answers name messages by it."""
    made: list[list[Delivery]] = []
    ids: set[str] = set()
    for delivery in deliveries:
        if not made or len(made[-1]) >= most or delivery.message.id in ids:
            made.append([])
            ids = set()
        made[-1].append(delivery)
        ids.add(delivery.message.id)
    return made


# Selection: which of the dead letters that come are those that were selected. Pure.
#
# | the snapshot saw        | selected are                                                         |
# |-------------------------|----------------------------------------------------------------------|
# | the broker's own ids    | the entries themselves                                               |
# | keys alone, by a peek   | of each key as many entries as it had rows; the first that are begun |
#
# What has been sent, failed and was moved back by a broker that wrote nothing on it has the key of
# the one before it. It is not sent again by the same run: it would go round, and its removal would
# be counted as that of another one, which is still there.


class Chosen:
    """The selection, as one consumer meets it."""

    def __init__(self, selected: Mapping[str, int]) -> None:
        self._selected = selected
        self._begun: dict[str, tuple[str, ...]] = {}

    def has(self, entry: str) -> bool:
        """Whether it is selected; from then on it has its place, however often it comes."""
        if entry in self._selected:
            return True
        key = entry[:KEY_LENGTH]
        begun = self._begun.get(key, ())
        if entry in begun:
            return True
        if len(begun) >= self._selected.get(key, 0):
            return False
        self._begun[key] = (*begun, entry)
        return True

    def note(self, entries: Iterable[str]) -> None:
        """These were begun by others, or by a run before."""
        for entry in entries:
            self.has(entry)


# Pace: so many messages a second and no more.

_BURST_S = 1.0
"""What was not used is saved up for so long."""


class Pace:
    """A token bucket. None for the rate means no limit. For one task."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        # Begins empty: the first second has no burst on top of its share.
        self._tokens = 0.0
        self._at_s = clock.now_s()

    def most_at_once(self, batch: int) -> int:
        """How large a batch may be, such that it waits for about a second at most."""
        if self._rate is None:
            return batch
        return max(1, min(batch, int(self._rate * _BURST_S)))

    async def wait_for(self, count: int, stopping: asyncio.Event) -> bool:
        """Return when `count` may be sent; False when `stopping` came first."""
        if self._rate is None:
            return not stopping.is_set()
        while not stopping.is_set():
            self._refill(count)
            if self._tokens >= count - 1e-9:
                self._tokens -= count
                return True
            with suppress(TimeoutError):
                async with self._clock.timeout((count - self._tokens) / self._rate):
                    await stopping.wait()
        return False

    def _refill(self, count: int) -> None:
        assert self._rate is not None
        now_s = self._clock.now_s()
        most = max(float(count), self._rate * _BURST_S)
        self._tokens = min(most, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s


# Held dead letters: received, kept under lease until they are removed or handed back.

_log = get_logger("pump.redrive")
_LOOK_S = 1.0


@attrs.frozen(kw_only=True)
class Removal:
    """What has left its queue, and why something else could not for now."""

    gone: tuple[Delivery, ...]
    error: GatewayError | None = None


class DeadLetterReader:
    """Receives and removes dead letters; the leased reader hands back what is left."""

    def __init__(
        self, leased: LeasedReader, can: Capabilities, *, batch: int, clock: Clock
    ) -> None:
        self.leased = leased
        self._clock = clock
        self._most = min(can.receive_batch, batch)
        self._poller_count = min(can.max_pollers, -(-batch // can.receive_batch))
        self.is_full = False
        """The broker gives no more for as long as so many are held."""

    async def receive(self) -> list[Delivery]:
        """What comes within a second. A broker that is away is asked again a few times, and then
        its error is raised; one that gives no more for what is held leaves `is_full` behind.
        """
        for attempt in range(1, TRIES + 1):
            try:
                received = await self._receive()
            except GatewayError as error:
                if attempt == TRIES and isinstance(error, Throttled) and len(self.leased):
                    self.is_full = True
                    break
                if attempt == TRIES or not is_passing(error):
                    raise
            else:
                return received
            await pause(attempt, self._clock)
        return []

    async def remove(self, deliveries: Sequence[Delivery]) -> Removal:
        """Remove them from their queue, as far as they are held.

        What the broker owns again will be delivered again. What it could not be told of, it has
        been asked for a few times.
        """
        held = [each for each in deliveries if self.leased.holds(each)]
        refused = await self.leased.settle(held, ACK)
        return Removal(
            gone=tuple(each for each in held if each not in refused),
            error=next((each.error for each in refused.values() if not each.is_final), None),
        )

    async def _receive(self) -> list[Delivery]:
        # The others bring what is there at this moment, and never wait for more.
        waits_s = [_LOOK_S] + [0.0] * (self._poller_count - 1)
        receive = partial(self.leased.receive, max_count=self._most)
        calls = [receive(wait_s=wait_s) for wait_s in waits_s]
        if len(calls) == 1:
            return list(await calls[0])
        answers = await asyncio.gather(*calls, return_exceptions=True)
        received = [
            each for answer in answers if not isinstance(answer, BaseException) for each in answer
        ]
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        # What the others brought is held: it must be kept, whatever became of one call.
        if failures and not received:
            raise failures[0]
        return received


# Sender: batches on their way to the target, written down before and after.
#
# | what happens                 | recorded          | and then                           |
# |------------------------------|-------------------|------------------------------------|
# | accepted                     | as sent           | it may be removed                  |
# | refused by the target        | as not sent       | stays in the dead-letter queue     |
# | no answer                    | as begun, no more | sent again, with the same id       |
# | no answer, again and again   | as begun, no more | the run ends with the error        |
# | the record cannot be written | –                 | the run ends; nothing more is sent |

_ANSWER_S = 30.0
_ABOUT_THE_QUEUE = (QueueNotFound, AccessDenied, ConfigurationError, StorageFailed)


@attrs.frozen
class BatchResult:
    """What became of a batch."""

    accepted: Mapping[Delivery, float] = attrs.field(factory=dict)
    """With the moment that was recorded."""
    refused: tuple[tuple[Delivery, Exception], ...] = ()
    repeated_count: int = 0


class RedriveSender:
    """Sends dead letters to one queue."""

    def __init__(
        self, producer: ProducerPort, target: str, record: RedriveRecord, clock: Clock
    ) -> None:
        self._producer = producer
        self._target = target
        self._record = record
        self._clock = clock
        self._in_doubt: set[str] = set()

    def doubt(self, entries: set[str]) -> None:
        """These may have been sent by a process that died before it recorded that."""
        self._in_doubt |= entries

    async def send(
        self,
        deliveries: Sequence[Delivery],
        *,
        holds: Callable[[Delivery], bool],
        stopping: asyncio.Event,
    ) -> BatchResult:
        """Send what is still held; return when each is accepted and recorded, or refused.

        Every message id is in a batch once. Raises when the target cannot be reached, and
        `StorageFailed` when what was sent cannot be recorded.
        """
        sent = BatchResult()
        left = list(deliveries)
        for attempt in range(1, TRIES + 1):
            left = [each for each in left if holds(each)]
            if not left:
                return sent
            once, left, error = await self._once(left)
            sent = _joined(sent, once)
            if not left or error is None:
                return sent
            if attempt == TRIES:
                raise error
            await pause(attempt, self._clock)
            if stopping.is_set():
                return sent
        return sent

    async def _once(
        self, deliveries: Sequence[Delivery]
    ) -> tuple[BatchResult, list[Delivery], PumpError | None]:
        """What came of one try, what is to be tried again, and why."""
        entries = {each: entry_of(each) for each in deliveries}
        batch = await asyncio.to_thread(self._record.sending, list(entries.values()))
        failures = await self._failures(deliveries)
        failed = [each for each in deliveries if each.message.id in failures]
        again = [each for each in failed if is_passing(failures[each.message.id])]
        accepted = [each for each in deliveries if each not in failed]
        at_s = self._clock.time_s()
        if accepted or not again:
            without = {entries[each] for each in failed}
            await asyncio.to_thread(self._record.sent, batch, without, at_s)
        repeated = self._in_doubt & {entries[each] for each in accepted}
        self._in_doubt -= repeated
        self._in_doubt |= {entries[each] for each in again}
        refused = tuple((each, failures[each.message.id]) for each in failed if each not in again)
        sent = BatchResult(dict.fromkeys(accepted, at_s), refused, len(repeated))
        error = failures[again[0].message.id] if again else None
        return sent, again, error if isinstance(error, PumpError) else None

    async def _failures(self, deliveries: Sequence[Delivery]) -> dict[str, Exception]:
        """By message id, why it was not accepted."""
        messages = [redriven(each, self._target) for each in deliveries]
        try:
            async with self._clock.timeout(_ANSWER_S):
                await self._producer.send(messages)
        except TimeoutError:
            silence = ConnectionFailed(self._target, f"no answer within {_ANSWER_S:g} s")
            return {message.id: silence for message in messages}
        except SendFailed as error:
            return dict(error.failures)
        except GatewayError as error:
            if is_passing(error):
                return {message.id: error for message in messages}
            # What happens to one message alone is raised as it is.
            if len(messages) > 1 or isinstance(error, _ABOUT_THE_QUEUE):
                raise
            return {messages[0].id: error}
        return {}


def _joined(one: BatchResult, other: BatchResult) -> BatchResult:
    return BatchResult(
        {**one.accepted, **other.accepted},
        one.refused + other.refused,
        one.repeated_count + other.repeated_count,
    )
