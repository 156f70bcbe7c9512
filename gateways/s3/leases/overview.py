"""The overview: what a queue holds, looked at and counted without touching it; and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import attrs

from pump.errors import ConnectionFailed
from pump.message import Message
from pump.ports import QueueStats

from ..store.objects import Entry, Found, Missing
from .catalogue import known_leases
from .codec import (
    BatchId,
    Content,
    Lease,
    Letter,
    MessageId,
    batch_key,
    batch_of,
    lease_key,
    message_of,
)
from .context import Desk
from .protocol import Undecided, lease_in, read, read_batch, remove_all, survey

_MAX_LEASES = 100
_MAX_BATCHES = 16
"""How much is read for an estimate."""


@attrs.frozen
class _View:
    """A queue as two listings show it."""

    batches: Mapping[BatchId, Entry]
    leases: Mapping[MessageId, Entry]

    def messages(self, *, is_lifo: bool = False) -> Iterator[tuple[BatchId, MessageId]]:
        """Those that are not done, in the order in which they are to be had."""
        for batch in sorted(self.batches, key=lambda each: each.number, reverse=is_lifo):
            places = range(batch.count)
            for place in reversed(places) if is_lifo else places:
                message = MessageId(batch.number, place)
                entry = self.leases.get(message)
                if entry is None or entry.size:
                    yield batch, message


class Overview:
    """Counts, shows and empties one queue."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def stats(self) -> QueueStats:
        """An estimate: what was not read counts as in flight if it has a lease, else as visible."""
        view = await self._view()
        messages = list(view.messages())
        leased = [message for _, message in messages if message in view.leases]
        leases = await self._leases(view, leased[:_MAX_LEASES])
        contents = await self._contents([batch for batch, _ in messages], _MAX_BATCHES)
        earliest_s = self._desk.earliest_s
        counts = {"visible": 0, "in_flight": 0, "delayed": 0}
        for batch, message in messages:
            lease = leases.get(message)
            letter = _letter(contents, batch, message)
            counts[_state(lease, message in view.leases, letter, earliest_s)] += 1
        oldest_s = min((view.batches[batch].modified_s for batch, _ in messages), default=None)
        age_s = None if oldest_s is None else max(0.0, earliest_s - oldest_s)
        return QueueStats(name=self._desk.facts.name, oldest_age_s=age_s, **counts)

    async def peek(self, max_count: int) -> list[Message]:
        """The next messages that could be had."""
        view = await self._view()
        found: list[Message] = []
        in_order = list(view.messages(is_lifo=self._desk.facts.is_lifo))
        for start in range(0, len(in_order), _MAX_LEASES):
            some = in_order[start : start + _MAX_LEASES]
            leases = await self._leases(view, [each for _, each in some if each in view.leases])
            contents = await self._contents([batch for batch, _ in some], len(some))
            for batch, message in some:
                letter = _letter(contents, batch, message)
                is_leased = message in view.leases
                state = _state(leases.get(message), is_leased, letter, self._desk.earliest_s)
                if letter is not None and state == "visible":
                    found.append(letter.open())
                if len(found) == max_count:
                    return found
        return found

    async def purge(self) -> int:
        """Remove every batch that is there now, then its leases; how many messages there were.

        Whoever holds one finds its lease gone. A lease whose batch is not listed is left: the
        batch may just have come.
        """
        desk, view = self._desk, await self._view()
        numbers = {batch.number for batch in view.batches}
        batches = [batch_key(desk.around.keys, batch) for batch in view.batches]
        for number in numbers:
            desk.catalogue.drop(number)
        if not await desk.driver.run(remove_all(batches)):
            raise ConnectionFailed(desk.facts.name, "not all of it was removed; purge it again")
        # Listed again: claims that have come since cannot be confirmed any more.
        leases = (await self._view()).leases
        doomed = [lease_key(desk.around.keys, each) for each in leases if each.number in numbers]
        await desk.driver.run(remove_all(doomed))
        return sum(1 for _ in view.messages())

    async def _view(self) -> _View:
        keys = self._desk.around.keys
        seen = await self._desk.driver.run(survey(keys))
        if isinstance(seen, Undecided):
            raise seen.error
        batches = {batch: entry for entry in seen[0] if (batch := batch_of(keys, entry.key))}
        leases = {message: entry for entry in seen[1] if (message := message_of(keys, entry.key))}
        return _View(batches, leases)

    async def _leases(self, view: _View, wanted: Sequence[MessageId]) -> dict[MessageId, Lease]:
        known = known_leases(self._desk.catalogue)
        answers = await asyncio.gather(
            *(self._lease(message, known.get(view.leases[message].etag)) for message in wanted)
        )
        return {
            message: lease
            for message, lease in zip(wanted, answers, strict=True)
            if lease is not None
        }

    async def _lease(self, message: MessageId, known: Lease | None) -> Lease | None:
        if known is not None:
            return known
        there = await self._desk.driver.run(read(lease_key(self._desk.around.keys, message)))
        return lease_in(there) if isinstance(there, Found) else None

    async def _contents(self, batches: Sequence[BatchId], max_reads: int) -> dict[BatchId, Content]:
        contents: dict[BatchId, Content] = {}
        unread: list[BatchId] = []
        for batch in dict.fromkeys(batches):
            opened = self._desk.catalogue.opened.get(batch.number)
            if opened is not None and opened.content is not None:
                contents[batch] = opened.content
            else:
                unread.append(batch)
        keys = self._desk.around.keys
        chosen = unread[:max_reads]
        reading = (self._desk.driver.run(read_batch(batch_key(keys, batch))) for batch in chosen)
        for batch, there in zip(chosen, await asyncio.gather(*reading), strict=True):
            if not isinstance(there, Missing | Undecided):
                contents[batch] = there
        return contents


def _letter(
    contents: Mapping[BatchId, Content], batch: BatchId, message: MessageId
) -> Letter | None:
    content = contents.get(batch)
    has_it = content is not None and message.place < len(content.letters)
    return content.letters[message.place] if content is not None and has_it else None


def _state(lease: Lease | None, is_leased: bool, letter: Letter | None, earliest_s: float) -> str:
    """What a message that is not done counts as."""
    if lease is None:
        if is_leased:
            return "in_flight"
        is_delayed = letter is not None and letter.visible_at_s > earliest_s
        return "delayed" if is_delayed else "visible"
    if lease.expires_s <= earliest_s:
        return "visible"
    return "in_flight" if lease.is_held else "delayed"
