"""The shelf: segments that were read or written here, up to so many bytes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from pump.errors import ConnectionFailed, MappingError, StorageFailed
from pump.message import Message
from pump.stores.packing import unpack

Read = Callable[[str], Awaitable[list[bytes] | None]]
Opened = Message | StorageFailed | None
"""A message, or why it cannot be read; None when its segment is gone."""

_MAX_AT_ONCE = 32
"""How many segments are read at once."""


class Shelf:
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
            # Whoever is cancelled does not take the segment from the others.
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
            # Told to whoever waits; if nobody does any more, to nobody.
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
