"""Sending: what a process sends at about the same time goes into one segment.

While a segment is being written the next one gathers; when nothing is, it is written at once. Its
commit does not hold up the next segment.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from math import floor

import attrs

from pump.errors import ConnectionFailed, MappingError, SendFailed, StorageFailed
from pump.message import Message
from pump.stores.packing import pack, unpack

from ..layout import Surroundings
from ..store.objects import drive
from . import codec
from .commit import write_segment
from .committer import Committer, Fulfilled, PacedStore
from .entries import Lot, SendOperation
from .state import SendResult

SEGMENT_BYTES = 8 * 1024 * 1024


@attrs.define(eq=False)
class SegmentPart:
    """Messages of one send that go into one segment."""

    ids: list[str]
    packed: list[bytes]
    lot: Lot
    done: Future[None]
    size: int


class SegmentSender:
    """Writes segments, then has them committed."""

    def __init__(
        self, committer: Committer, surroundings: Surroundings, cache: SegmentCache
    ) -> None:
        self._committer = committer
        self._around = surroundings
        self._cache = cache
        self._waiting: list[SegmentPart] = []
        self._task: asyncio.Task[None] | None = None

    async def send(self, messages: Sequence[Message], *, delay_s: float) -> list[str]:
        """Return the ids once all are committed. When only some are, `SendFailed` names the
        others; when none is known to be, the error says why.
        """
        parts = list(_parts(messages, delay_s))
        self._waiting += parts
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush(), name="segments")
        errors = await asyncio.gather(*(each.done for each in parts), return_exceptions=True)
        failures = [
            (id_, error)
            for part, error in zip(parts, errors, strict=True)
            if isinstance(error, Exception)
            for id_ in part.ids
        ]
        if failures:
            _raise(self._committer.follower.settings.name, failures, len(messages))
        return [message.id for message in messages]

    async def aclose(self) -> None:
        """Finish what is being sent."""
        if self._task is not None:
            await self._task

    async def _flush(self) -> None:
        while self._waiting:
            parts = self._next()
            if not parts:
                return
            try:
                if not self._committer.follower.is_loaded:
                    # The store's time must be known, and the first look tells it.
                    await self._committer.look()
                committed = await self._write(parts)
            except Exception as error:  # broad: the senders get it, whatever it is
                _end_all(parts, error)
            except BaseException:
                # What has gathered meanwhile fails as well: it will not be sent any more.
                parts, self._waiting = parts + self._waiting, []
                _end_all(parts, _stopped())
                raise
            else:
                committed.add_done_callback(partial(_tell, parts))

    def _next(self) -> list[SegmentPart]:
        self._waiting = [part for part in self._waiting if not part.done.done()]
        size, count = 0, 0
        for part in self._waiting:
            if count and size + part.size > SEGMENT_BYTES:
                break
            size, count = size + part.size, count + 1
        parts = self._waiting[:count]
        del self._waiting[:count]
        return parts

    async def _write(self, parts: list[SegmentPart]) -> Future[Fulfilled]:
        around, segment = self._around, self._around.new_id()
        packed = [each for part in parts for each in part.packed]
        born_s = float(floor(around.time.earliest_s()))
        key = self._committer.follower.segment_key(segment)
        body = codec.pack_segment(packed)
        await drive(write_segment(key, body), PacedStore(around.store, around.clock))
        self._cache.put(segment, packed)
        return self._committer.submit(
            SendOperation(segment, born_s, tuple(each.lot for each in parts))
        )


def _parts(messages: Sequence[Message], delay_s: float) -> Iterable[SegmentPart]:
    packed: list[bytes] = []
    size = first = 0
    for place, message in enumerate(messages):
        one = pack(message)
        if packed and size + len(one) > SEGMENT_BYTES:
            yield _part(messages[first:place], packed, delay_s)
            packed, size, first = [], 0, place
        packed.append(one)
        size += len(one)
    if packed:
        yield _part(messages[first:], packed, delay_s)


def _part(messages: Sequence[Message], packed: list[bytes], delay_s: float) -> SegmentPart:
    groups = tuple(codec.as_key(message.group) for message in messages)
    keys = tuple(codec.as_key(message.deduplication_id) for message in messages)
    lot = Lot(
        len(packed),
        max(0.0, delay_s),
        groups if any(group is not None for group in groups) else (),
        keys if any(key is not None for key in keys) else (),
    )
    done: Future[None] = asyncio.get_running_loop().create_future()
    ids = [message.id for message in messages]
    return SegmentPart(ids, packed, lot, done, sum(map(len, packed)))


def _tell(parts: list[SegmentPart], done: Future[Fulfilled]) -> None:
    error = _stopped() if done.cancelled() else done.exception()
    if error is None and done.result().result != SendResult(is_accepted=True):
        error = ConnectionFailed("the store", "a segment took too long to be named; send again")
    _end_all(parts, error)


def _end_all(parts: list[SegmentPart], error: BaseException | None) -> None:
    for part in parts:
        if part.done.done():
            continue
        if error is None:
            part.done.set_result(None)
        else:
            part.done.set_exception(error)


def _stopped() -> ConnectionFailed:
    return ConnectionFailed("the store", "the gateway was closed while a send was under way")


def _raise(queue: str, failures: list[tuple[str, Exception]], count: int) -> None:
    if len(failures) == count:
        raise failures[0][1]
    raise SendFailed(queue, tuple(failures))


# Segment cache: segments that were read or written here, up to so many bytes.

Read = Callable[[str], Awaitable[list[bytes] | None]]
Opened = Message | StorageFailed | None
"""A message, or why it cannot be read; None when its segment is gone."""

_MAX_AT_ONCE = 32
"""How many segments are read at once."""


class SegmentCache:
    """Gets a segment from the store once, however many ask, and keeps those used last."""

    def __init__(self, read: Read, max_bytes: int) -> None:
        self._read = read
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, Sequence[bytes]] = OrderedDict()
        self._size = 0
        self._reading: dict[str, asyncio.Task[Sequence[bytes] | None]] = {}
        self._gate = asyncio.Semaphore(_MAX_AT_ONCE)

    def put(self, segment: str, messages: Sequence[bytes]) -> None:
        """Keep a segment."""
        self.drop(segment)
        self._kept[segment] = messages
        self._size += _size(messages)
        while self._size > self._max_bytes and len(self._kept) > 1:
            self.drop(next(iter(self._kept)))

    def drop(self, segment: str) -> None:
        """Forget a segment."""
        self._size -= _size(self._kept.pop(segment, ()))

    async def get(self, segment: str) -> Sequence[bytes] | None:
        """The packed messages of a segment, by their place; None when it is gone."""
        kept = self._kept.get(segment)
        if kept is not None:
            self._kept.move_to_end(segment)
            return kept
        reading = self._reading.get(segment)
        if reading is None:
            reading = asyncio.create_task(self._fetch(segment), name=f"read {segment}")
            self._reading[segment] = reading
            reading.add_done_callback(lambda task: self._forget(segment, task))
        try:
            # A cancelled reader does not take the segment from the others.
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if reading.cancelled() and me is not None and not me.cancelling():
                raise ConnectionFailed(segment, "the gateway was closed meanwhile") from None
            raise

    async def message(self, segment: str, place: int) -> Message | None:
        """One message; None when its segment is gone."""
        messages = await self.get(segment)
        return None if messages is None else _unpacked(messages, segment, place)

    async def messages(self, places: Sequence[tuple[str, int]]) -> list[Opened]:
        """Many messages, by segment and place. Their segments are read side by side: of what was
        sent one by one, each message has its own.
        """
        segments = await self._get_all(segment for segment, _ in places)
        return [_opened(segments[segment], segment, place) for segment, place in places]

    async def _get_all(
        self, segments: Iterable[str]
    ) -> dict[str, Sequence[bytes] | StorageFailed | None]:
        wanted = list(dict.fromkeys(segments))
        got = await asyncio.gather(*(self.get(each) for each in wanted), return_exceptions=True)
        found: dict[str, Sequence[bytes] | StorageFailed | None] = {}
        for segment, each in zip(wanted, got, strict=True):
            if isinstance(each, BaseException) and not isinstance(each, StorageFailed):
                raise each
            found[segment] = each
        return found

    async def aclose(self) -> None:
        """End what is being read."""
        reading = list(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _fetch(self, segment: str) -> Sequence[bytes] | None:
        async with self._gate:
            messages = await self._read(segment)
        if messages is not None:
            self.put(segment, messages)
        return messages

    def _forget(self, segment: str, task: asyncio.Task[Sequence[bytes] | None]) -> None:
        self._reading.pop(segment, None)
        if not task.cancelled():
            # The readers have it; without one, it must not be logged as never retrieved.
            task.exception()


def _opened(messages: Sequence[bytes] | StorageFailed | None, segment: str, place: int) -> Opened:
    if messages is None or isinstance(messages, StorageFailed):
        return messages
    try:
        return _unpacked(messages, segment, place)
    except StorageFailed as fault:
        return fault


def _unpacked(messages: Sequence[bytes], segment: str, place: int) -> Message:
    try:
        return unpack(messages[place])
    except (MappingError, IndexError) as error:
        raise StorageFailed(segment, f"message {place} cannot be read: {error}") from error


def _size(messages: Sequence[bytes]) -> int:
    return sum(map(len, messages))
