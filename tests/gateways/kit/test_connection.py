"""A connection for many callers: one attempt at a time, pauses after failures (R51)."""

from __future__ import annotations

import asyncio

import pytest

from gateways._kit.connection import Reconnecting
from pump.backoff import Backoff
from pump.errors import ConnectionFailed
from pump.testing import VirtualClock

PAUSES = Backoff(jitter=0.0)


class Cable:
    def __init__(self, number: int) -> None:
        self.number = number
        self.is_alive = True


class Harbour:
    """Makes cables; each attempt waits until it is told how it ends."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.attempts: list[asyncio.Future[None]] = []
        self.ended: list[Cable] = []
        self.made: list[Cable] = []
        self.cables = Reconnecting(
            self._connect,
            is_alive=lambda cable: cable.is_alive,
            end=self._end,
            backoff=PAUSES,
            clock=self.clock,
            target="boat://host",
            made=self._note,
        )

    async def _connect(self) -> Cable:
        self.attempts.append(asyncio.get_running_loop().create_future())
        number = len(self.attempts)
        await self.attempts[-1]
        return Cable(number)

    async def _end(self, lost: Cable) -> None:
        self.ended.append(lost)

    def _note(self, made: Cable) -> None:
        assert made is self.cables.current
        self.made.append(made)

    def ask(self) -> asyncio.Task[Cable]:
        return asyncio.create_task(self.cables.get())

    async def succeed(self) -> None:
        await self.clock.advance(0)
        self.attempts[-1].set_result(None)

    async def fail(self) -> None:
        await self.clock.advance(0)
        self.attempts[-1].set_exception(ConnectionFailed("boat://host", "refused"))

    async def connected(self) -> Cable:
        asking = self.ask()
        await self.succeed()
        return await asking


async def test_when_many_ask_then_one_attempt_serves_them_all() -> None:
    harbour = Harbour()
    asking = [harbour.ask() for _ in range(5)]

    await harbour.succeed()
    cables = await asyncio.gather(*asking)

    assert [cable.number for cable in cables] == [1] * 5
    assert await harbour.cables.get() is harbour.cables.current
    assert len(harbour.attempts) == 1


async def test_when_a_caller_is_cancelled_then_the_others_are_served() -> None:
    harbour = Harbour()
    leaving, staying = harbour.ask(), harbour.ask()
    await harbour.clock.advance(0)

    leaving.cancel()
    await harbour.succeed()

    assert (await staying).number == 1
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_when_an_attempt_fails_then_all_are_told_and_the_next_one_waits() -> None:
    harbour = Harbour()
    asking = [harbour.ask() for _ in range(2)]
    await harbour.fail()
    for each in asking:
        with pytest.raises(ConnectionFailed, match="refused"):
            await each

    again = harbour.ask()
    await harbour.clock.advance(0.9)
    before = len(harbour.attempts)
    await harbour.clock.advance(0.2)

    assert (before, len(harbour.attempts)) == (1, 2)
    await harbour.succeed()
    assert (await again).number == 2


async def test_when_it_is_long_after_a_failure_then_the_next_attempt_is_made_at_once() -> None:
    harbour = Harbour()
    asking = harbour.ask()
    await harbour.fail()
    with pytest.raises(ConnectionFailed):
        await asking
    await harbour.clock.advance(60)

    assert (await harbour.connected()).number == 2


async def test_when_the_connection_is_lost_then_it_is_ended_and_another_is_made() -> None:
    harbour = Harbour()
    first = await harbour.connected()

    first.is_alive = False
    second = await harbour.connected()

    assert (harbour.ended, second.number) == ([first], 2)
    assert harbour.made == [first, second]


async def test_when_it_is_closed_then_who_waits_is_told_and_it_can_be_reopened() -> None:
    harbour = Harbour()
    asking = harbour.ask()
    await harbour.clock.advance(0)

    assert await harbour.cables.aclose() is None
    with pytest.raises(ConnectionFailed, match="closed"):
        await asking
    with pytest.raises(ConnectionFailed, match="closed"):
        await harbour.cables.get()

    harbour.cables.reopen()
    made = await harbour.connected()
    assert await harbour.cables.aclose() is made
    assert await harbour.cables.aclose() is None
