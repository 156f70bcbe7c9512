"""A fetch returns what is leased to it, or has it handed back: nothing stays with nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateways.nats.connection import JetStream
from gateways.nats.link import Incoming, PullInbox
from gateways.nats.pulls import Arrived, PullOptions, fetch
from pump.errors import ConnectionFailed
from pump.testing import VirtualClock

WISH = PullOptions(consumer="orders.pump", max_count=3, wait_s=5.0)
LOST = ConnectionFailed("nats://host", "lost")


def a_message(number: int) -> Incoming:
    return Incoming("orders", f"$JS.ACK.orders.pump.1.{number}.1.1.1", b"")


class ScriptedLink:
    """Delivers some messages, then fails, or ends the pull."""

    def __init__(self, messages: Sequence[Incoming], error: BaseException | None) -> None:
        self._messages = messages
        self._error = error
        self._inbox = PullInbox()
        self.handed_back: list[Incoming] = []
        self.late: Callable[[Incoming], None] | None = None
        self.is_inbox_free = False

    async def open_inbox(self) -> PullInbox:
        return self._inbox

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        self._reply = reply

    async def until(self, done: asyncio.Future[None], subject: str, *, timeout_s: float) -> None:
        for message in self._messages:
            self._inbox.deliver(message)
        if self._error is not None:
            raise self._error
        self._inbox.deliver(Incoming(self._reply, "", b"", {"Status": "408"}))
        await done

    def close_inbox(self, inbox: PullInbox) -> None:
        self.is_inbox_free = True

    def drop_inbox(self, inbox: PullInbox, late: Callable[[Incoming], None]) -> None:
        self.late = late

    def unwanted(self, _: object, arrived: Arrived) -> None:
        self.handed_back.append(arrived.message)


def api_over(link: ScriptedLink) -> JetStream:
    async def get() -> ScriptedLink:
        return link

    settings = SimpleNamespace(request_timeout_s=1.0)
    connection = SimpleNamespace(link=get, settings=settings)
    api: Any = SimpleNamespace(connection=connection, subject=lambda name: name)
    return cast("JetStream", api)


async def test_when_the_server_ends_the_pull_then_its_inbox_can_be_used_again() -> None:
    link = ScriptedLink([a_message(1), a_message(2)], None)

    fetched = await fetch(api_over(link), WISH, clock=VirtualClock(), unwanted=link.unwanted)

    assert len(fetched.arrived) == 2
    assert link.is_inbox_free


async def test_when_the_connection_is_lost_then_what_had_arrived_is_returned() -> None:
    """It is leased: nobody else would get it before the lease ends."""
    link = ScriptedLink([a_message(1)], LOST)

    fetched = await fetch(api_over(link), WISH, clock=VirtualClock(), unwanted=link.unwanted)

    assert len(fetched.arrived) == 1
    assert not link.is_inbox_free
    assert link.handed_back == []


async def test_when_the_connection_is_lost_and_nothing_had_arrived_then_it_is_said() -> None:
    link = ScriptedLink([], LOST)

    with pytest.raises(ConnectionFailed):
        await fetch(api_over(link), WISH, clock=VirtualClock(), unwanted=link.unwanted)


async def test_when_a_fetch_is_cancelled_then_all_that_came_or_comes_is_handed_back() -> None:
    """Law 6."""
    link = ScriptedLink([a_message(1)], asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await fetch(api_over(link), WISH, clock=VirtualClock(), unwanted=link.unwanted)
    assert link.late is not None
    link.late(a_message(2))

    assert len(link.handed_back) == 2
