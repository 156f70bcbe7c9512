"""The network between processes and the store: where requests and replies get lost, late, doubled.

| fate    | the store                                 | the process                            |
|---------|-------------------------------------------|----------------------------------------|
| fine    | applies it                                | gets the reply                         |
| lost    | never sees it                             | `Unknown` after a timeout              |
| unheard | applies it                                | `Unknown` after a timeout              |
| late    | applies it long after the timeout         | `Unknown` after a timeout              |
| retried | sees it twice: the reply of the first is  | the reply of the second; a refusal may |
|         | lost, or the first comes after the second | be by its own (`may_be_ours`), or a    |
|         |                                           | 409 that says nothing of the first     |
| busy    | 409 of a conditional write: nothing       | `WriteConflict`                        |
| broken  | 500 or 503: applied or not                | `Unknown`                              |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random

import attrs

from gateways.s3.store.objects import ConditionFailed, Put, Reply, Request, Unknown, WriteConflict
from pump.errors import ConnectionFailed, Throttled
from tests.gateways.s3.model_store import ModelS3

from .loop import VirtualLoop
from .machines import Process
from .trace import Trace

NAMES = ("lost", "unheard", "late", "retried", "busy", "broken", "slow")


@attrs.frozen(kw_only=True)
class Faults:
    """How likely what goes wrong is, a request; and how long things take."""

    lost: float = 0.0
    unheard: float = 0.0
    late: float = 0.0
    retried: float = 0.0
    busy: float = 0.0
    broken: float = 0.0
    slow: float = 0.0
    """A fine one that takes about as long as a lease."""
    dies: float = 0.0
    """The process dies of it, before or after it has left."""
    latency_s: float = 0.03
    timeout_s: float = 1.5
    late_s: float = 12.0
    """The longest that a request can be under way."""

    @classmethod
    def drawn(cls, rng: Random) -> Faults:
        """Some kinds of faults, each often or rarely: rare kinds alone reach where all do not."""
        often = rng.choice((0.05, 0.15, 0.3))
        chances = {name: often * rng.random() for name in NAMES if rng.random() < 0.6}
        dies = rng.choice((0.0, 0.005, 0.02, 0.04))
        return cls(**chances, dies=dies, latency_s=rng.choice((0.001, 0.01, 0.03, 0.15)))

    @property
    def hurried(self) -> Faults:
        """With nothing under way for more than a few seconds."""
        return attrs.evolve(self, timeout_s=0.8, late_s=3.0)


class Network:
    """Carries requests. `is_calm` ends the faults; what was late still comes."""

    def __init__(self, s3: ModelS3, loop: VirtualLoop, rng: Random, faults: Faults) -> None:
        self.s3 = s3
        self.faults = faults
        self.is_calm = False
        self.late_count = 0
        """Requests that are under way and of which nobody waits for an answer."""
        self.trace = Trace(loop.time)
        self.on_applied: Callable[[Process, Request, Reply], None] = lambda *_: None
        self._loop = loop
        self._rng = rng

    async def perform(self, process: Process, request: Request) -> Reply:
        """As `ObjectStore.perform`, for one process; a dead one waits for ever."""
        done: asyncio.Future[Reply] = self._loop.create_future()
        if process.is_alive and not self._dies(process):
            self.trace.note(process.name, "asks", request)
            call = _Call(process, request, done, process.machine.local_s())
            self._send(call, self._fate(request))
            if self._dies(process):
                process.die()
        elif process.is_alive:
            process.die()
        return await done

    def _dies(self, process: Process) -> bool:
        return not self.is_calm and self._rng.random() < self.faults.dies

    def _fate(self, request: Request) -> str:
        if self.is_calm:
            return "fine"
        drawn = self._rng.random()
        for name in NAMES:
            drawn -= getattr(self.faults, name)
            if drawn < 0:
                return name if name != "busy" or _is_conditional(request) else "fine"
        return "fine"

    def _send(self, call: _Call, fate: str) -> None:
        there_s = self._trip_s()
        timeout_s = self.faults.timeout_s * self._rng.uniform(0.7, 1.3)
        match fate:
            case "fine":
                self._after(there_s, self._apply, call, None)
            case "slow":
                self._after(there_s * self._rng.choice((1, 40)), self._apply, call, None, 40.0)
            case "busy":
                self._after(there_s * 2, self._answer, call, WriteConflict(), self.s3.date_s)
            case "retried":
                self._retry(call, there_s)
            case "broken":
                if self._rng.random() < 0.5:
                    self._let_in(there_s, call)
                self._after(there_s * 2, self._answer, call, _broken(), None)
            case _:
                arrival_s = {"unheard": there_s, "late": self._late_s(timeout_s)}.get(fate)
                if arrival_s is not None:
                    self._let_in(arrival_s, call)
                self._after(timeout_s, self._answer, call, _lost(), None)

    def _retry(self, call: _Call, there_s: float) -> None:
        """What an SDK does of itself: the same request again."""
        again_s = there_s + self._rng.uniform(0.05, 1.0)
        first_s = self._rng.choice((there_s, there_s, again_s + 0.02, self._late_s(again_s)))
        self._let_in(first_s, call)
        if _is_conditional(call.request) and self._rng.random() < 0.2:
            busy = WriteConflict(may_be_ours=True)
            self._after(again_s + self._trip_s(), self._answer, call, busy, self.s3.date_s)
        else:
            self._after(again_s, self._apply, call, True)

    def _let_in(self, delay_s: float, call: _Call) -> None:
        self.late_count += 1
        self._after(delay_s, self._apply_unheard, call)

    def _apply_unheard(self, call: _Call) -> None:
        self.late_count -= 1
        reply = self.s3.apply(call.request)
        self.trace.note(call.process.name, "unheard", reply)
        self.on_applied(call.process, call.request, reply)

    def _apply(self, call: _Call, is_retry: bool | None, slowness: float = 1.0) -> None:
        reply = self.s3.apply(call.request)
        self.on_applied(call.process, call.request, reply)
        if is_retry and isinstance(reply, ConditionFailed):
            reply = ConditionFailed(may_be_ours=True)
        self.trace.note(call.process.name, "applied", reply)
        self._after(self._trip_s() * slowness, self._answer, call, reply, self.s3.date_s)

    def _answer(self, call: _Call, reply: Reply, date_s: float | None) -> None:
        call.process.when_running(partial(self._hear, call, reply, date_s))

    def _hear(self, call: _Call, reply: Reply, date_s: float | None) -> None:
        if call.done.done():
            return
        process = call.process
        if date_s is not None:
            now_s = process.machine.local_s()
            process.time.observe(date_s, sent_s=call.sent_s, received_s=now_s)
        process.doubts += isinstance(reply, Unknown) or getattr(reply, "may_be_ours", False)
        if isinstance(reply, Unknown | WriteConflict):
            self.trace.note(process.name, "hears", f"{type(reply).__name__} of {call.request}")
        call.done.set_result(reply)

    def _trip_s(self) -> float:
        return self.faults.latency_s * self._rng.uniform(0.2, 2.0)

    def _late_s(self, timeout_s: float) -> float:
        return timeout_s + self._rng.random() ** 2 * self.faults.late_s

    def _after(self, delay_s: float, act: Callable[..., None], *args: object) -> None:
        self._loop.call_later(delay_s, act, *args)


@attrs.frozen(eq=False)
class _Call:
    process: Process
    request: Request
    done: asyncio.Future[Reply]
    sent_s: float


def _is_conditional(request: Request) -> bool:
    return isinstance(request, Put) and (request.is_new or request.if_match is not None)


def _lost() -> Unknown:
    return Unknown(ConnectionFailed("the store", "no answer"))


def _broken() -> Unknown:
    return Unknown(Throttled("the store"))
