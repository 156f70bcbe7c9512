"""The relay: sends what was committed to the outbox, and removes what a broker has confirmed.

Any number of them, in any number of processes, on one outbox. A destination is at any time one
relay's, for one batch at a time, so its order is kept; each destination has a task of its own, so
that one that is dead holds up no other. A relay that dies has at most that batch sent again.

What a task does after a turn:

| the turn                          | and then                                                  |
|-----------------------------------|-----------------------------------------------------------|
| sent rows, and there are others   | the next turn                                             |
| sent rows, or found none          | waits until it is told of a commit                        |
| found another relay at work, or   | stands by: waits some seconds, whatever it is told, so    |
| twice nothing where it was told   | that few of many relays wake for a post                   |
| failed, by the destination's      | pauses, longer and longer                                 |
| trouble or the database's         |                                                           |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from math import inf
from typing import Final, assert_never

import attrs

from ..backoff import RECONNECT, UNREACHABLE, Backoff
from ..clock import Clock
from ..errors import ConnectionFailed, PumpError, SendFailed, Throttled, text_of
from ..message import Message
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Counters
from .sending import send_batch
from .store import Outbox, Relayed, RowsWanted, WaitingRow

_log = get_logger("pump.outbox")
MAX_COUNT: Final = 1_000
SEND_S: Final = 30.0
"""How long a broker may take to confirm a call."""
BATCH_S: Final = 20.0
"""How long after a batch was taken another call may begin: with that call it ends well before its
database takes the relay for frozen.
"""
_POLL_S: Final = 5.0
_DEAF_POLL_S: Final = 0.5
_PRUNE_S: Final = 60.0
_REST: Final = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1))
"""For a row that was refused alone, for a reason that may not last."""
_STAND_BY: Final = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=4), jitter=0.5)
_MAX_IDLE_TURNS: Final = 2
_PROVEN_S: Final = 10.0
"""How long after its broker's last answer a destination is expected to have another one soon."""


Forward = Callable[[str, Sequence[Message], float], Awaitable[object]]
"""Sends ready-made messages to a queue with a delay, in seconds."""


class _Turn(Enum):
    MORE = auto()
    DONE = auto()
    NOTHING = auto()
    TAKEN = auto()
    FAILED = auto()


@attrs.frozen(kw_only=True, eq=False)
class _Shared:
    """What the destinations of one relay have in common."""

    outbox: Outbox
    forward: Forward
    clock: Clock
    counters: Counters
    draining: asyncio.Event = attrs.field(factory=asyncio.Event)
    probes: asyncio.Semaphore = attrs.field(factory=partial(asyncio.Semaphore, 1))
    """For destinations that failed: a broker that does not answer keeps one connection of the
    outbox busy, and not all of them."""
    unproven: asyncio.Semaphore | None = attrs.field(init=False)
    """For destinations that have not answered lately: all together they leave a connection to those
    that have, whether they fail or are new."""

    @unproven.default
    def _leave_one(self) -> asyncio.Semaphore | None:
        most = self.outbox.max_taken
        return None if most is None else asyncio.Semaphore(max(1, most - 1))

    @asynccontextmanager
    async def turn(self, *, has_failed: bool, is_proven: bool) -> AsyncIterator[None]:
        """Wait until a destination may take its turn."""
        async with AsyncExitStack() as held:
            if has_failed:
                await held.enter_async_context(self.probes)
            if self.unproven is not None and not is_proven:
                await held.enter_async_context(self.unproven)
            yield


class Relay:
    """Relays one outbox through one app's gateway, until drained."""

    def __init__(
        self, outbox: Outbox, forward: Forward, *, clock: Clock, counters: Counters
    ) -> None:
        self._shared = _Shared(outbox=outbox, forward=forward, clock=clock, counters=counters)
        self._outbox = outbox
        self._clock = clock
        self._destinations: dict[str, _Destination] = {}
        self._look_now = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Relay until drained. Trouble with the database or a broker is waited for; cancelled, it
        leaves a batch that is being sent to the next relay.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                housekeeping = [
                    group.create_task(self._look(), name="outbox look"),
                    group.create_task(self._prune(), name="outbox prune"),
                ]
                await self._shared.draining.wait()
                for task in housekeeping:
                    task.cancel()
        finally:
            self._group = None
            self._outbox.unwatch(self.told)

    def drain(self) -> None:
        """Begin no further batch; `run` returns when those under way are settled."""
        self._shared.draining.set()
        for each in self._destinations.values():
            each.wake()

    def told(self, destination: str | None) -> None:
        """Rows for this destination were committed, or for some that is not known."""
        if destination is None:
            self._look_now.set()
        elif self._group is not None and not self._shared.draining.is_set():
            found = self._destinations.get(destination)
            if found is None:
                found = self._destinations[destination] = _Destination(destination, self._shared)
                self._group.create_task(found.run(), name=f"outbox {destination}")
            found.wake()

    async def clear(self, ids: Sequence[str]) -> None:
        """Send these messages now, as far as they are committed and wait; of their groups all that
        waits. Raises why one cannot be sent.
        """
        while found := await self._outbox.find(ids):
            for destination, own in found.items():
                await _Destination(destination, self._shared).clear(own)

    async def _look(self) -> None:
        """Find rows that no one told of: those of before, and those of when it could not hear."""
        failure_count = 0
        while True:
            self._look_now.clear()
            try:
                await self._outbox.watch(self.told)
                for destination in await self._outbox.destinations():
                    self.told(destination)
            except Exception as error:  # broad: a relay outlives whatever its database does
                failure_count += 1
                if failure_count == 1:
                    name = self._outbox.name
                    _log.warning(vocabulary.OUTBOX_UNREACHABLE, outbox=name, error=text_of(error))
                await self._clock.sleep(UNREACHABLE.delay_s(failure_count, self._clock.chance()))
                continue
            failure_count = 0
            with suppress(TimeoutError):
                async with self._clock.timeout(_POLL_S if self._outbox.hears else _DEAF_POLL_S):
                    await self._look_now.wait()

    async def _prune(self) -> None:
        while True:
            # What cannot be pruned now can be later; trouble with the database is said by `_look`.
            with suppress(PumpError, OSError):
                await self._outbox.prune()
            await self._clock.sleep(_PRUNE_S)


class _Destination:
    """One destination's rows, in this process."""

    def __init__(self, name: str, shared: _Shared) -> None:
        self._name = name
        self._shared = shared
        self._clock = shared.clock
        self._wake = asyncio.Event()
        self._max_count = MAX_COUNT
        self._fault: Exception | None = None
        self._failure_count = 0
        self._proven_until_s = -inf
        self._idle_count = 0
        self._stand_by_count = 0
        self._resting: dict[int, tuple[float, int | None]] = {}
        """Until when rows that were refused are left alone, and their lanes."""
        self._set_aside: dict[str, str] = {}
        """Messages that the last turn has set aside, and why."""
        self._unsettled: set[tuple[int, str]] = set()
        """Positions and ids of rows that were sent, and are perhaps still there: their database
        refused to remove them.
        """

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    async def run(self) -> None:
        """Turn after turn, until the relay drains."""
        while not self._shared.draining.is_set():
            self._wake.clear()
            await self._pause_after(await self._turn())

    async def clear(self, ids: Sequence[str]) -> None:
        """One turn, for these only."""
        turn = await self._turn(ids)
        if self._fault is not None:
            raise self._fault
        aside = [(id_, why) for id_, why in self._set_aside.items() if id_ in ids]
        if aside:
            raise SendFailed(self._name, tuple((id_, PumpError(why)) for id_, why in aside))
        if turn is _Turn.TAKEN or self._resting:
            await self._clock.sleep(_STAND_BY.delay_s(1, self._clock.chance()))

    # -- a turn ------------------------------------------------------------------------------------

    async def _turn(self, ids: Sequence[str] | None = None) -> _Turn:
        has_failed = self._failure_count > 0
        is_proven = not has_failed and self._clock.now_s() < self._proven_until_s
        try:
            async with self._shared.turn(has_failed=has_failed, is_proven=is_proven):
                if ids is None and self._shared.draining.is_set():
                    return _Turn.DONE
                return await self._send_some(ids)
        except Exception as error:  # broad: what breaks one destination's turn holds up no other
            return self._fail(error)

    async def _send_some(self, ids: Sequence[str] | None) -> _Turn:
        relayed = Relayed()
        try:
            async with self._shared.outbox.taken(self._take(ids)) as batch:
                if batch is None:
                    return _Turn.TAKEN
                if not batch.rows:
                    self._unsettled.clear()
                    return _Turn.NOTHING
                relayed = self._sent_before(batch.rows) or await self._send_batch(batch.rows)
                await batch.settle(relayed)
        except Exception:  # broad: whatever it is, these rows were sent
            self._unsettled |= _names(relayed.sent)
            raise
        self._unsettled -= _names(relayed.sent)
        self._note(relayed)
        if relayed.fault is not None:
            return self._fail(relayed.fault)
        self._recover()
        return _Turn.DONE if batch.is_all and not relayed.is_partial else _Turn.MORE

    def _take(self, ids: Sequence[str] | None) -> RowsWanted:
        now_s = self._clock.now_s()
        self._resting = {at: rest for at, rest in self._resting.items() if rest[0] > now_s}
        lanes = {lane for _, lane in self._resting.values() if lane is not None}
        return RowsWanted(
            destination=self._name,
            max_count=self._max_count,
            without=list(self._resting),
            without_lanes=list(lanes),
            ids=ids,
        )

    def _sent_before(self, rows: Sequence[WaitingRow]) -> Relayed | None:
        """Those of them that need no more than to be settled, before any other is sent."""
        sent = [each for each in rows if (each.position, each.id) in self._unsettled]
        if sent:
            return Relayed(sent=sent, is_partial=True)
        # Those before the last of these would be among them.
        last = rows[-1].position
        self._unsettled = {each for each in self._unsettled if each[0] > last}
        return None

    async def _send_batch(self, rows: Sequence[WaitingRow]) -> Relayed:
        last_call_s = self._clock.now_s() + BATCH_S
        return await send_batch(
            rows, self._send, is_time_up=lambda: self._clock.now_s() > last_call_s
        )

    async def _send(self, messages: Sequence[Message], delay_s: float) -> None:
        async with self._clock.timeout(SEND_S):
            await self._shared.forward(self._name, messages, delay_s)

    def _note(self, relayed: Relayed) -> None:
        counters = self._shared.counters
        if relayed.sent:
            counters.add(vocabulary.OUTBOX_RELAYED, len(relayed.sent), queue=self._name)
            lag_s = max(each.age_s for each in relayed.sent)
            _log.debug(
                vocabulary.OUTBOX_SENT,
                destination=self._name,
                count=len(relayed.sent),
                lag_s=round(lag_s, 3),
            )
        self._set_aside = {row.id: reason for row, reason in relayed.set_aside}
        for row, reason in relayed.set_aside:
            counters.add(vocabulary.OUTBOX_SET_ASIDE, queue=self._name)
            _log.error(
                vocabulary.OUTBOX_ROW_SET_ASIDE,
                destination=self._name,
                message_id=row.id,
                attempt=row.attempts,
                error=reason,
            )
        for row in relayed.refused:
            rest_s = _REST.delay_s(row.attempts + 1, self._clock.chance())
            self._resting[row.position] = self._clock.now_s() + rest_s, row.lane

    def _fail(self, error: Exception) -> _Turn:
        self._failure_count += 1
        if type(error) is not type(self._fault):
            _log.warning(vocabulary.OUTBOX_DELAYED, destination=self._name, error=text_of(error))
        self._fault = error
        if isinstance(error, TimeoutError):
            # Nothing is known of what was sent: fewer next time, so that it comes to an end.
            self._max_count = max(1, self._max_count // 4)
        return _Turn.FAILED

    def _recover(self) -> None:
        self._proven_until_s = self._clock.now_s() + _PROVEN_S
        self._max_count = min(MAX_COUNT, 2 * self._max_count)
        if self._fault is not None:
            _log.info(vocabulary.OUTBOX_RECOVERED, destination=self._name)
        self._failure_count, self._fault = 0, None

    # -- between turns -----------------------------------------------------------------------------

    async def _pause_after(self, turn: _Turn) -> None:
        if turn is not _Turn.NOTHING or self._resting:
            self._idle_count = 0
        match turn:
            case _Turn.MORE:
                self._stand_by_count = 0
            case _Turn.DONE:
                self._stand_by_count = 0
                await self._wait_until_told()
            case _Turn.NOTHING:
                self._idle_count += 1
                if self._idle_count >= _MAX_IDLE_TURNS:
                    await self._stand_by()
                await self._wait_until_told()
            case _Turn.TAKEN:
                await self._stand_by()
            case _Turn.FAILED:
                await self._wait_for_drain(self._failure_pause_s())
            case _:
                assert_never(turn)

    async def _wait_until_told(self) -> None:
        rests = [until_s for until_s, _ in self._resting.values()]
        left_s = max(0.0, min(rests) - self._clock.now_s()) if rests else None
        with suppress(TimeoutError):
            async with self._clock.timeout(left_s):
                await self._wake.wait()

    async def _stand_by(self) -> None:
        self._stand_by_count += 1
        await self._wait_for_drain(_STAND_BY.delay_s(self._stand_by_count, self._clock.chance()))

    def _failure_pause_s(self) -> float:
        backoff = UNREACHABLE if isinstance(self._fault, ConnectionFailed) else RECONNECT
        pause_s = backoff.delay_s(self._failure_count, self._clock.chance())
        asked_s = self._fault.retry_after_s if isinstance(self._fault, Throttled) else None
        return max(pause_s, asked_s or 0.0)

    async def _wait_for_drain(self, most_s: float) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(most_s):
                await self._shared.draining.wait()


def _names(rows: Sequence[WaitingRow]) -> set[tuple[int, str]]:
    # A database that was restored may give a position to another message.
    return {(each.position, each.id) for each in rows}
