"""Sending: many messages through one producer, several sends at once, in order per group. Needs no
PySpark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
from zlib import crc32

import attrs

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import GatewayError, PumpError, SendFailed
from ...message import Message
from ...ports import Gateway, ProducerPort
from ...retrying import TRIES, is_passing, pause
from .options import SinkOptions
from .rows import RowIds, messages_of

_SEND_COUNT = 200
"""Messages of one send; the gateway cuts them by its own limits."""


@attrs.frozen
class RowsNotSent(PumpError):
    """Rows that a queue did not take. Those before and beside them may have been sent."""

    queue: str
    count: int
    row: int
    partition: int
    message_id: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.count} row(s) were not sent to queue {self.queue!r}; the first, row {self.row} "
            f"of partition {self.partition} (id {self.message_id}): {self.reason}"
        )


@attrs.frozen
class _Numbered:
    row: int
    message: Message


async def send_partition(
    options: SinkOptions, iterator: Iterator[Any], ids: RowIds, *, clock: Clock = SYSTEM_CLOCK
) -> int:
    """Send all rows of a partition through a gateway of its own; return how many."""
    gateway = options.place.gateway()
    try:
        await gateway.open()
        return await send_batches(gateway, options, iterator, ids, clock=clock)
    finally:
        await gateway.aclose()


async def send_batches(
    gateway: Gateway, options: SinkOptions, iterator: Iterator[Any], ids: RowIds, *, clock: Clock
) -> int:
    """Send the rows of all record batches through an open gateway; return how many.

    `RowsNotSent` names the first row that the queue did not take, `ConfigurationError` the first
    that is no message.
    """
    producer = gateway.producer(options.place.queue)
    sender = _Sender(producer, options.place.queue, ids.partition, clock)
    row = 0
    try:
        # Spark's next batch may take long; what is under way goes on meanwhile.
        while (batch := await asyncio.to_thread(next, iterator, None)) is not None:
            messages = messages_of(
                batch,
                ids,
                first_row=row,
                now_s=clock.time_s(),
                deduplicates=gateway.capabilities.has_deduplication,
            )
            numbered = [_Numbered(row + at, each) for at, each in enumerate(messages)]
            row += len(numbered)
            async with asyncio.TaskGroup() as group:
                for lane in _lanes(numbered, options.lanes):
                    group.create_task(sender.send(lane), name="spark send")
    except* PumpError as errors:
        raise _first(errors) from None
    finally:
        await producer.aclose()
    return row


class _Sender:
    def __init__(self, producer: ProducerPort, queue: str, partition: int, clock: Clock) -> None:
        self._producer = producer
        self._queue = queue
        self._partition = partition
        self._clock = clock

    async def send(self, lane: Sequence[_Numbered]) -> None:
        """Send in order, one send after the other."""
        rows = iter(lane)
        while part := list(islice(rows, _SEND_COUNT)):
            await self._send(part)

    async def _send(self, rows: Sequence[_Numbered]) -> None:
        """Send; what was refused for now, and only that, again."""
        pending = rows
        for attempt in range(1, TRIES + 1):
            failures = await self._failures(pending)
            lasting = {id_ for id_, error in failures.items() if not is_passing(error)}
            if failures and (lasting or attempt == TRIES):
                raise self._error(pending, failures, lasting or set(failures))
            pending = [each for each in pending if each.message.id in failures]
            if not pending:
                return
            await pause(attempt, self._clock)

    async def _failures(self, rows: Sequence[_Numbered]) -> dict[str, Exception]:
        try:
            await self._producer.send([each.message for each in rows])
        except SendFailed as error:
            return dict(error.failures)
        except GatewayError as error:
            return {each.message.id: error for each in rows}
        return {}

    def _error(
        self, rows: Sequence[_Numbered], failures: dict[str, Exception], guilty: set[str]
    ) -> RowsNotSent:
        failed = [each for each in rows if each.message.id in failures]
        first = next(each for each in failed if each.message.id in guilty)
        return RowsNotSent(
            self._queue,
            len(failed),
            first.row,
            self._partition,
            first.message.id,
            str(failures[first.message.id]),
        )


def _lanes(rows: Sequence[_Numbered], count: int) -> list[list[_Numbered]]:
    """Rows of one group stay together and in order; the others are spread."""
    lanes: list[list[_Numbered]] = [[] for _ in range(count)]
    for each in rows:
        group = each.message.group
        # Whole sends at a time: neighbours stay neighbours.
        lane = each.row // _SEND_COUNT if group is None else crc32(group.encode())
        lanes[lane % count].append(each)
    return [lane for lane in lanes if lane]


def _first(errors: BaseExceptionGroup[PumpError]) -> PumpError:
    """The one with the lowest row says where to look."""
    flat: list[PumpError] = []
    groups: list[BaseException] = [errors]
    while groups:
        each = groups.pop()
        if isinstance(each, BaseExceptionGroup):
            groups += each.exceptions
        elif isinstance(each, PumpError):
            flat.append(each)
    return min(flat, key=lambda error: error.row if isinstance(error, RowsNotSent) else -1)
