"""Wishes: operations that wait for a commit, and who waits for them."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterable
from typing import Any

import attrs

from ..store.server_time import DRIFT
from .desk import Ask
from .entries import Op, Send, Settle
from .results import Result


@attrs.frozen
class Fulfilled:
    """What came of an operation, and which messages its entry was the end of."""

    result: Result
    dead: tuple[int, ...] = ()


@attrs.frozen(eq=False)
class Wish:
    """An operation that waits for a commit."""

    op: Op
    done: Future[Fulfilled]


def granted_s(lease_s: float) -> float:
    """A lease by the store's clock that is not over before a slow clock of ours has counted it."""
    return lease_s * (1 + DRIFT)


def brings(op: Op) -> int:
    """How many messages an operation makes available at once."""
    if isinstance(op, Send):
        return sum(lot.count for lot in op.lots if lot.delay_s <= 0)
    if isinstance(op, Settle):
        return sum(1 for delay_s in op.delays_s if delay_s is not None and delay_s <= 0)
    return 0


def fail(wishes: Iterable[Wish], asks: Iterable[Ask], error: Exception) -> None:
    """Tell all of them what prevented it."""
    for wish in wishes:
        if not wish.done.done():
            wish.done.set_exception(error)
    for ask in asks:
        if not ask.answer.done():
            ask.answer.set_exception(error)


def observe(done: Future[Any]) -> None:
    """Whoever asked may be gone; an error nobody hears of is not worth a warning."""
    if not done.cancelled():
        done.exception()


def unheard(op: Op) -> Wish:
    """A wish whose outcome nobody waits for."""
    done: Future[Fulfilled] = asyncio.get_running_loop().create_future()
    done.add_done_callback(observe)
    return Wish(op, done)
