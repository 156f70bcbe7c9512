"""Pump process: one of several that run the same app, as its supervisor holds it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from typing import Final

from ..clock import Clock
from ..health.wire import Answer, Request
from .booting import boot_command
from .intercom import (
    ATTACHED,
    DRAIN,
    ENDED,
    SERVING,
    STOP,
    Intercom,
    Letter,
    answer_heard,
    request_said,
)
from .succession import Ended
from .tally import Tally

ANSWER_S: Final = 2.0
"""How long a process may take to answer: a probe's own patience is a few seconds."""
_LAST_WORD_S: Final = 1.0
"""How long, after its end, what a process said may still be on its way."""


class PumpProcess:
    """A process of its own session: Ctrl-C on a terminal reaches it through its supervisor, once.

    Orders go over the intercom, not as signals: systemd signals every process of a unit, and a
    drain with a signal on top of that would be the second one, which stops.
    """

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, intercom: Intercom, clock: Clock
    ) -> None:
        self.number = number
        self._started_at_s = clock.now_s()
        self.is_ready = False
        """Whether it has once been; set by whoever waits for it."""
        self.was_told = False
        self.tally = Tally()
        """What it had counted when it was last heard of."""
        self._process = process
        self._intercom = intercom
        self._clock = clock
        self._is_attached = self._is_serving = self._has_said_all = False
        self._ids = count(1)
        self._asked: dict[int, asyncio.Future[Answer | None]] = {}
        self._ending = asyncio.create_task(self._see_through(), name=f"process {number}")

    @classmethod
    async def start(cls, letter: Letter, clock: Clock) -> PumpProcess:
        """Start one, and tell it what to run. `OSError` when the machine has no room for it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *boot_command("pump.cli.member"),
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        intercom = await Intercom.over(ours)
        intercom.say(letter.as_message())
        return cls(letter.number, process, intercom, clock)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def age_s(self) -> float:
        """How long ago it was started."""
        return self._clock.now_s() - self._started_at_s

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, and all that it said has been heard."""
        return self._ending.done()

    async def ended(self) -> Ended:
        """Return once it is gone; anybody may wait, and give it up."""
        code = await asyncio.shield(self._ending)
        return Ended(code=code, was_told=self.was_told, was_ready=self.is_ready)

    async def ended_within(self, delay_s: float) -> bool:
        """Whether it has gone by then; returns as soon as it has."""
        with suppress(TimeoutError):
            async with self._clock.timeout(delay_s):
                await self.ended()
        return self.has_ended

    def drain(self) -> None:
        """Have it finish what it started, and end. Asking again changes nothing."""
        if not self.was_told and not self.has_ended:
            self.was_told = True
            self._order(DRAIN)

    def stop(self) -> None:
        """Have it hand back what it has, and end."""
        self.was_told = True
        self._order(STOP)

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.returncode is None:
            self._process.kill()

    async def ask(self, request: Request) -> Answer | None:
        """Its answer; None when it cannot, or does not in time. See `health.crew.Member`."""
        if self.has_ended or (not self._is_serving and request.method != "POST"):
            return None
        id, answered = next(self._ids), asyncio.get_running_loop().create_future()
        self._intercom.say(request_said(id, request))
        if not self._is_serving:
            return None
        self._asked[id] = answered
        try:
            async with self._clock.timeout(ANSWER_S):
                answer: Answer | None = await answered
        except TimeoutError:
            return None
        finally:
            self._asked.pop(id, None)
        self._keep(request, answer)
        return answer

    async def looks_ready(self) -> bool:
        """Whether it says that it is."""
        answer = await self.ask(Request(method="GET", path=("readyz",)))
        return answer is not None and answer.status == HTTPStatus.OK

    def _order(self, order: str) -> None:
        if self._is_attached:
            self._intercom.say({"order": order})
        elif self._process.returncode is None:
            self._process.terminate()  # It has nothing in hand yet, and would not hear us.

    def _keep(self, request: Request, answer: Answer | None) -> None:
        """What is known is kept, for when it does not answer, or dies without a last word."""
        # Whoever asked may hear of an answer after the last word, which came after it.
        if answer is None or answer.status != HTTPStatus.OK or self._has_said_all:
            return
        if request.path == ("metrics",):
            self.tally = self.tally.with_metrics(answer.body)
        else:
            self.tally = self.tally.with_document(answer.document())

    async def _see_through(self) -> int:
        listening = asyncio.create_task(self._listen(), name=f"intercom {self.number}")
        code = await self._process.wait()
        # Whatever it has forked may hold the other end open for ever.
        with suppress(TimeoutError):
            async with self._clock.timeout(_LAST_WORD_S):
                await asyncio.shield(listening)
        listening.cancel()
        self._intercom.close()
        for answered in self._asked.values():
            if not answered.done():
                answered.set_result(None)
        return code

    async def _listen(self) -> None:
        while (said := await self._intercom.hear()) is not None:
            match said:
                case {"event": event} if event == ATTACHED:
                    self._is_attached = True
                case {"event": event} if event == SERVING:
                    self._is_serving = True
                case {"event": event} if event == ENDED:
                    self.tally, self._has_said_all = Tally.of(said), True
                case {"id": int(id)} if id in self._asked and not self._asked[id].done():
                    self._asked[id].set_result(answer_heard(said))
