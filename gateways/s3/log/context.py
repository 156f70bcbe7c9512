"""Waiting receives, and when it is worth asking the store for them.

| a receive is | when                                    | then                                  |
|--------------|-----------------------------------------|---------------------------------------|
| waiting      | it is known that something may be had   | taking: its `Take` is in a commit     |
| waiting      | its time is over, no look since it came | a look is due                         |
| waiting      | its time is over, a look since it came  | answered: nothing                     |
| taking       | it got something                        | answered                              |
| taking       | it got nothing                          | waiting, or answered if time is over  |

Looking is shared: one look serves all receives that came before it began. The pause between looks
doubles from `FIRST_POLL_S` to `poll_s` as long as nothing is new.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable
from math import inf

import attrs

from .state import Available, TakenMessage

FIRST_POLL_S = 0.1


@attrs.define(eq=False, kw_only=True)
class WaitingReceive:
    """One receive."""

    max_count: int
    lease_s: float
    deadline_s: float
    answer: Future[ReceiveAnswer]
    turn: int = 0
    """Of all receives here, this is the turn-th."""


@attrs.frozen
class ReceiveAnswer:
    """What a receive got, and the local time when the lease was asked for."""

    taken: tuple[TakenMessage, ...] = ()
    built_s: float = 0.0


class WaitingReceives:
    """Waiting receives, first come first served. Times are local."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._waiting: dict[WaitingReceive, None] = {}
        self._pause_s = min(FIRST_POLL_S, poll_s)
        self._looked_s = -inf
        self._turns = 0
        self._seen = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, ask: WaitingReceive) -> None:
        """Let a receive wait."""
        self._turns += 1
        ask.turn = self._turns
        self._waiting[ask] = None

    def leave(self, ask: WaitingReceive) -> None:
        """Let go of a receive that no longer waits."""
        self._waiting.pop(ask, None)

    def choose(self, available: Available) -> list[WaitingReceive]:
        """Those whose turn it is when at most so much may be had."""
        chosen: list[WaitingReceive] = []
        left = available.messages
        for ask in self._waiting:
            if left <= 0 or len(chosen) == available.receives:
                break
            chosen.append(ask)
            left -= ask.max_count
        for ask in chosen:
            del self._waiting[ask]
        return chosen

    def return_empty(self, asks: Iterable[WaitingReceive]) -> None:
        """Let those wait on that got nothing, in front of the others."""
        again = {ask: None for ask in asks if not ask.answer.done()}
        self._waiting = {**again, **self._waiting}

    @property
    def turns(self) -> int:
        """How many receives have come, for `note_look`: taken before a look begins."""
        return self._turns

    def note_look(self, began_s: float, turns: int, *, is_news: bool) -> None:
        """Take note that what the store had then is known, for receives that had come."""
        self._looked_s, self._seen = began_s, turns
        first_s = min(FIRST_POLL_S, self._poll_s)
        self._pause_s = first_s if is_news else min(2 * self._pause_s, self._poll_s)

    def dismiss(self, now_s: float) -> None:
        """Answer those whose time is over and that a look has served."""
        for ask in [ask for ask in self._waiting if ask.deadline_s <= now_s]:
            if ask.turn <= self._seen:
                del self._waiting[ask]
                answer(ask, ReceiveAnswer())

    def next_look_s(self) -> float:
        """When to look next; infinity while no receive waits."""
        if not self._waiting:
            return inf
        unseen = [ask.deadline_s for ask in self._waiting if ask.turn > self._seen]
        return min([self._looked_s + self._pause_s, *unseen])

    def next_deadline_s(self) -> float:
        """When the next receive's time is over."""
        return min((ask.deadline_s for ask in self._waiting), default=inf)

    def fail(self, error: Exception) -> None:
        """Fail all that wait: it cannot be known whether there is something."""
        for ask in self._waiting:
            if not ask.answer.done():
                ask.answer.set_exception(error)
        self._waiting.clear()

    def dismiss_all(self) -> None:
        """Answer all that wait: nothing."""
        for ask in self._waiting:
            answer(ask, ReceiveAnswer())
        self._waiting.clear()


def answer(ask: WaitingReceive, what: ReceiveAnswer) -> bool:
    """Answer a receive, unless it was cancelled."""
    if ask.answer.done():
        return False
    ask.answer.set_result(what)
    return True
