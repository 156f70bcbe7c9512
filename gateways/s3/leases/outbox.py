"""The outbox: sends that come together go out together, in as few objects as they fit in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from pump.errors import ConnectionFailed, MessageTooLarge, PumpError, QueueMismatch, SendFailed
from pump.message import Message

from ..layout import MAX_BODY_BYTES
from .codec import (
    BatchContent,
    BatchedMessage,
    BatchId,
    MessageId,
    batch_key,
    encode_batch,
    lease_key,
)
from .context import LeaseQueueContext
from .protocol import KnownTail, Undecided, put_batch, take_numbers

_MAX_ROUNDS = 5

OnSent = Callable[[BatchId, BatchContent], None]


@attrs.define(eq=False)
class _PendingSend:
    """What one send brought, and the future its caller awaits."""

    ids: list[str]
    answer: asyncio.Future[list[str]]
    failures: list[tuple[str, Exception]] = attrs.field(factory=list)

    def close(self, queue: str) -> None:
        """Answer the sender, if it has not been cancelled."""
        if self.answer.done():
            return
        if not self.failures:
            self.answer.set_result(self.ids)
        elif len(self.failures) == len(self.ids):
            self.answer.set_exception(self.failures[0][1])
        else:
            self.answer.set_exception(SendFailed(queue, tuple(self.failures)))


@attrs.frozen(eq=False)
class _Item:
    """One message on its way."""

    batched: BatchedMessage
    delay_s: float
    id: str
    pending: _PendingSend


class Outbox:
    """Sends for one process. While a flush is under way, the next one gathers."""

    def __init__(self, context: LeaseQueueContext, on_sent: OnSent) -> None:
        self._context = context
        self._on_sent = on_sent
        self._items: list[_Item] = []
        self._tail: KnownTail | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def send(self, messages: Sequence[Message], delay_s: float) -> list[str]:
        """As `ProducerPort.send`. Cancelled, the messages may still be sent."""
        self._check(messages)
        ids = [message.id for message in messages]
        if not ids:
            return ids
        pending = _PendingSend(ids, asyncio.get_running_loop().create_future())
        for message in messages:
            self._items.append(_Item(BatchedMessage.of(message), delay_s, message.id, pending))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush(), name="s3 outbox")
        return await pending.answer

    async def aclose(self) -> None:
        """Wait for what is under way."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def stop(self) -> None:
        """End what is under way; its senders get an error: it may or may not have happened."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])

    def _check(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if len(message.body) > MAX_BODY_BYTES:
                raise MessageTooLarge(self._context.facts.name, len(message.body), MAX_BODY_BYTES)

    async def _flush(self) -> None:
        while self._items:
            items, self._items = self._items, []
            try:
                await self._put_all(list(_chunks(items)))
            except Exception as error:  # broad: the sender gets it, whatever it is
                _fail(items, error)
            except BaseException:
                # What has gathered meanwhile fails as well: it will not be sent any more.
                items, self._items = items + self._items, []
                stopped = "the gateway was closed while a send was under way"
                _fail(items, ConnectionFailed(self._context.facts.name, stopped))
                raise
            finally:
                for pending in dict.fromkeys(item.pending for item in items):
                    pending.close(self._context.facts.name)

    async def _put_all(self, chunks: Sequence[Sequence[_Item]]) -> None:
        first = await self._take_numbers(len(chunks))
        if not self._context.facts.is_strict:
            puts = (self._put(first + place, chunk) for place, chunk in enumerate(chunks))
            await asyncio.gather(*puts)
            return
        # One after the other: a later batch must never be there without the earlier one.
        for place, chunk in enumerate(chunks):
            error = await self._put(first + place, chunk)
            if error is not None:
                for later in chunks[place + 1 :]:
                    _fail(later, error)
                return

    async def _put(self, number: int, chunk: Sequence[_Item]) -> PumpError | None:
        """Write a batch; what went wrong is noted with its messages, and returned."""
        try:
            await self._put_somewhere(number, chunk)
        except PumpError as error:
            _fail(chunk, error)
            return error
        return None

    async def _put_somewhere(self, number: int, chunk: Sequence[_Item]) -> None:
        for _ in range(_MAX_ROUNDS):
            latest_s = self._context.around.time.latest_s()
            messages = [
                attrs.evolve(each.batched, visible_at_s=latest_s + each.delay_s)
                if each.delay_s > 0
                else each.batched
                for each in chunk
            ]
            content = BatchContent(messages, latest_s)
            batch = BatchId(number, len(chunk))
            key = batch_key(self._context.around.keys, batch)
            first_lease = lease_key(self._context.around.keys, MessageId(number, 0))
            steps = put_batch(key, encode_batch(content), first_lease)
            is_put = await self._context.driver.run(steps)
            if isinstance(is_put, Undecided):
                raise is_put.error
            if is_put:
                self._on_sent(batch, content)
                return
            self._tail = None
            number = await self._take_numbers(1)
        raise QueueMismatch(
            self._context.facts.name, "tail.json is behind the batches; purge the queue"
        )

    async def _take_numbers(self, count: int) -> int:
        around = self._context.around
        steps = take_numbers(around.keys, count, self._tail, around.new_id)
        numbers = await self._context.driver.run(steps)
        if isinstance(numbers, Undecided):
            self._tail = None
            raise numbers.error
        self._tail = numbers.tail
        return numbers.first


def _chunks(items: Sequence[_Item]) -> list[list[_Item]]:
    chunks: list[list[_Item]] = []
    room = 0
    for item in items:
        size = len(item.batched.packed)
        if not chunks or len(chunks[-1]) == MAX_BATCH_COUNT or size > room:
            chunks.append([])
            room = MAX_BATCH_BYTES
        chunks[-1].append(item)
        room -= size
    return chunks


def _fail(items: Sequence[_Item], error: Exception) -> None:
    for item in items:
        item.pending.failures.append((item.id, error))


# Limits of this layout.

MAX_BATCH_COUNT: Final = 100
MAX_BATCH_BYTES: Final = 1_048_576
"""Of more than one message, packed; a single one may be larger with its headers."""
