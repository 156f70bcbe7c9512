"""Control of a crew: what `control.py` does to one process, done to all of them.

What was asked is remembered for processes that start later. One that refuses does not keep the
others from doing it; the answer says which, and why.
"""

from __future__ import annotations

from http import HTTPStatus

from ..observability import vocabulary
from ..observability.log import get_logger
from . import guard
from .control import ACTIONS, KNOWN, allow, concurrency_in, no_fields
from .crew import Crew, ask_all, is_leaving
from .crew_probes import CrewProbes
from .crew_report import ProcessReport, merged
from .wire import Answer, Refused, Request

_log = get_logger("pump.health")
Answers = list[tuple[ProcessReport, Answer]]


class CrewControl:
    """Does to all processes of a run what it is asked."""

    def __init__(self, crew: Crew, probes: CrewProbes) -> None:
        self._crew = crew
        self._probes = probes

    async def answer(self, request: Request) -> Answer:
        """Have it done, and say how things are then."""
        guard.check(request)
        match request.path:
            case ("subscriptions",):
                allow(request, "GET", "HEAD")
                return Answer.of(await self._probes.document())
            case ("subscriptions", name):
                allow(request, "GET", "HEAD")
                return self._together(name, await self._ask(request))
            case ("subscriptions", name, action) if action in ACTIONS:
                allow(request, "POST")
                return await self._act(request, name, action)
            case ("drain",):
                allow(request, "POST")
                return await self._drain_all(request.body)
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, f"there is {KNOWN}")

    async def _act(self, request: Request, name: str, action: str) -> Answer:
        concurrency = concurrency_in(request.body) if action == "scale" else None
        if action != "scale":
            no_fields(request.body)
        _log.info(vocabulary.CONTROL_ASKED, operation=action, subscription=name)
        # Before anybody is asked: a process that starts meanwhile is to know of it too.
        before = self._crew.order(name)
        self._crew.order(name, before.after(action, concurrency))
        answers = await self._ask(request)
        if all(answer.status != HTTPStatus.OK for _, answer in answers):
            self._crew.order(name, before)
        return self._together(name, answers)

    async def _ask(self, request: Request) -> Answers:
        members = self._crew.members()
        if request.method == "POST" and not self._crew.is_draining:
            # One that leaves would refuse, and its successor does it.
            members = [each for each in members if not is_leaving(each)]
        found = await ask_all(members, request)
        answers = [(report, answer) for report, answer in found if answer is not None]
        if not answers:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "no process answers yet; ask again in a while"
            )
        return answers

    def _together(self, name: str, answers: Answers) -> Answer:
        for report, answer in answers:
            if answer.status != HTTPStatus.OK:
                why = answer.document().get("error", answer.status.phrase)
                raise Refused(answer.status, f"process {report.number}: {why}")
        parts = [(report, answer.document()) for report, answer in answers]
        return Answer.of(merged(parts, self._crew.counted().get(name, {})))

    async def _drain_all(self, body: bytes) -> Answer:
        no_fields(body)
        self._crew.drain()
        _log.info(vocabulary.CONTROL_ASKED, operation="drain")
        return Answer.of(await self._probes.document(), HTTPStatus.ACCEPTED)
