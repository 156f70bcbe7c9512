"""Pulls: one request for messages, and how its answers end it. Pure, but for the future.

The request says `no_wait` and when it expires. Then the server sends what there is and ends the
pull; where there is nothing it waits, and ends it after what came first. Thus a pull never stays
behind to take messages that nobody waits for any more.

| the server sends          | and the pull                                                    |
|---------------------------|-----------------------------------------------------------------|
| a message                 | goes on, or ends when it has as many as were asked for          |
| 404, 408                  | ends: no more for now, or its time is over                      |
| 409                       | ends: the consumer or its server is going, or too many wait     |
| 503                       | ends: there is no such consumer                                 |
| 100                       | goes on: the server is alive                                    |
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any

import attrs

from pump.clock import Clock

from .calls import nanoseconds
from .incoming import DESCRIPTION, Incoming, status_of

_SHORTEST_S = 0.02
"""How long a pull that must not wait may wait where it is not answered at once: while as many
are in flight as may be, the server leaves it unanswered until it expires."""


class Ending(StrEnum):
    """Why a pull ended."""

    DONE = "done"
    """There is no more, or enough."""
    GONE = "gone"
    """There is no such consumer, or it was just deleted."""
    AGAIN = "again"
    """The server is about to stop, or another one takes over."""
    CROWDED = "crowded"
    """Too many wait on this queue already."""
    REFUSED = "refused"
    """The server does not take the request; the status says why."""


def pull_request(*, max_count: int, wait_s: float, is_bounded: bool) -> dict[str, Any]:
    """The body of a pull."""
    if wait_s <= 0 and is_bounded:
        wait_s = _SHORTEST_S
    request: dict[str, Any] = {"batch": max_count, "no_wait": True}
    if wait_s > 0:
        request["expires"] = max(nanoseconds(wait_s), nanoseconds(_SHORTEST_S))
    return request


@attrs.frozen(eq=False)
class Arrived:
    """A message, and since when its lease runs at least."""

    message: Incoming
    at_s: float


class Pull:
    """The answers to one request, as they come in."""

    def __init__(self, max_count: int, clock: Clock, *, ends_at_s: float) -> None:
        self._max_count = max_count
        self._clock = clock
        self._ends_at_s = ends_at_s
        self.arrived: list[Arrived] = []
        self.ending = Ending.DONE
        self.status = ""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def receive(self, message: Incoming) -> None:
        """One answer."""
        status = status_of(message)
        if not status:
            # What is read later than that was on its way, or waited for this process.
            self.arrived.append(Arrived(message, min(self._clock.now_s(), self._ends_at_s)))
            if len(self.arrived) < self._max_count:
                return
        elif status == "100":
            return
        else:
            text = (message.headers or {}).get(DESCRIPTION, "")
            self.ending, self.status = _ending(status, text), f"{status} {text}".strip()
        if not self.done.done():
            self.done.set_result(None)


def _ending(status: str, text: str) -> Ending:
    text = text.lower()
    match status:
        case "404" | "408":
            return Ending.DONE
        case "503":
            return Ending.GONE
        case "409" if "deleted" in text:
            return Ending.GONE
        case "409" if "waiting" in text:
            return Ending.CROWDED
        case "409":
            return Ending.AGAIN
    return Ending.REFUSED
