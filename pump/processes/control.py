"""Control of several workers: what `health/control.py` does to one process, done to all of them.

What was asked is remembered for processes that start later. One that refuses does not keep the
others from doing it; the answer says which, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Protocol

import attrs

from ..clock import Clock
from ..health.control import (
    ACTIONS,
    KNOWN,
    allow,
    concurrency_in,
    installed_version,
    listen,
    no_fields,
)
from ..health.options import HealthOptions
from ..health.probes import KNOWN as PROBES, verdict
from ..http import guard
from ..http.wire import Answer, Refused, Request, refuse_changes
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.metrics_catalogue import CONTENT_TYPE
from .ipc import Order
from .merged_reports import (
    Counts,
    Families,
    ProcessReport,
    ProcessState,
    merged,
    merged_subscriptions,
    metrics_as_text,
    why_not_live,
    why_not_ready,
)

_log = get_logger("pump.health")
Answers = list[tuple[ProcessReport, Answer]]


class WorkersControl:
    """Does to all processes of a run what it is asked."""

    def __init__(self, group: WorkerGroup, probes: WorkersProbes) -> None:
        self._group = group
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
        # Before any is asked: a process that starts meanwhile is to know of it too.
        before = self._group.order(name)
        self._group.order(name, before.after(action, concurrency))
        answers = await self._ask(request)
        if all(answer.status != HTTPStatus.OK for _, answer in answers):
            self._group.order(name, before)
        return self._together(name, answers)

    async def _ask(self, request: Request) -> Answers:
        workers = self._group.workers()
        if request.method == "POST" and not self._group.is_draining:
            # One that leaves would refuse, and its successor does it.
            workers = [each for each in workers if not is_leaving(each)]
        found = await ask_all(workers, request)
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
        return Answer.of(merged(parts, self._group.counted().get(name, {})))

    async def _drain_all(self, body: bytes) -> Answer:
        no_fields(body)
        self._group.drain()
        _log.info(vocabulary.CONTROL_ASKED, operation="drain")
        return Answer.of(await self._probes.document(), HTTPStatus.ACCEPTED)


# The workers of one run, as their probes and their control see them.


class Worker(Protocol):
    """One of the numbered places of a run, and the process that fills it."""

    def report(self) -> ProcessReport:
        """How it is, as far as that is known without asking it."""

    async def ask(self, request: Request) -> Answer | None:
        """Its answer; None when no process is there that can answer, or when it takes longer
        than a probe can wait. A request to change something is sent to one that starts, too.
        """


class WorkerGroup(Protocol):
    """All processes of a run."""

    @property
    def is_draining(self) -> bool:
        """Whether all were told to end."""

    def counted(self) -> Counts:
        """What all had done when each was last heard of, those that have ended too."""

    def measured(self) -> Families:
        """Their metrics, in the same way."""

    def workers(self) -> Sequence[Worker]:
        """Those that have a place, and those that leave it."""

    def drain(self) -> None:
        """Have all of them finish what they started, and end."""

    def order(self, subscription: str, order: Order | None = None) -> Order:
        """What a process to come will be told of a subscription; changed when `order` is given."""


def is_leaving(worker: Worker) -> bool:
    """Whether it drains, and ends."""
    return worker.report().state is ProcessState.LEAVING


async def ask_all(
    workers: Iterable[Worker], request: Request
) -> list[tuple[ProcessReport, Answer | None]]:
    """What each of them answers, all asked at once."""
    asked = list(workers)
    answers = await asyncio.gather(*(each.ask(request) for each in asked))
    return [(each.report(), answer) for each, answer in zip(asked, answers, strict=True)]


async def reports(workers: Iterable[Worker], path: str) -> list[ProcessReport]:
    """How each of them is, with the document it answers to this path."""
    request = Request(method="GET", path=(path,))
    return [
        attrs.evolve(report, found=None if answer is None else answer.document())
        for report, answer in await ask_all(workers, request)
    ]


# Probes of several workers: what `health/probes.py` says of one process, said of all together.


class WorkersProbes:
    """Answers about all processes of a run, by asking each of them."""

    def __init__(
        self, group: WorkerGroup, options: HealthOptions | None, clock: Clock, *, version: str
    ) -> None:
        self._group = group
        limits = options or HealthOptions(port=0)
        self._max_failing_s = limits.max_failing.total_seconds()
        self._clock = clock
        self._version = version
        self._started_at_s = clock.now_s()

    async def answer(self, request: Request) -> Answer:
        """Answer a GET or HEAD."""
        refuse_changes(request)
        match request.path:
            case ("livez",):
                return await self._live()
            case ("readyz",):
                return await self._ready()
            case ("health",):
                return Answer.of(await self.document())
            case ("metrics",):
                return Answer(body=await self.metrics(), content_type=CONTENT_TYPE)
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, f"there is {PROBES}")

    async def document(self) -> dict[str, object]:
        """Everything that is known."""
        found = await reports(self._group.workers(), "health")
        reasons = self._reasons(found)
        documents = [each.found for each in found if each.found is not None]
        return {
            "live": not any(map(self._is_ill, found)),
            "ready": not reasons,
            "draining": self._group.is_draining,
            "reasons": reasons,
            "version": self._version,
            "gateway": documents[0].get("gateway") if documents else None,
            "uptime_s": round(self._clock.now_s() - self._started_at_s, 3),
            "processes": [each.as_json() for each in found],
            "subscriptions": merged_subscriptions(found, self._group.counted()),
        }

    async def metrics(self) -> bytes:
        """The metrics of all, as one text; `Refused` when no process has any."""
        await ask_all(self._group.workers(), Request(method="GET", path=("metrics",)))
        # Not the answers: a worker that did not answer, or has ended, counts as last heard of.
        measured = self._group.measured()
        if not measured:
            raise Refused(
                HTTPStatus.NOT_FOUND, "this app's telemetry has no metrics for Prometheus to fetch"
            )
        return metrics_as_text(measured)

    async def _live(self) -> Answer:
        found = await reports(self._group.workers(), "livez")
        problems = [
            why for each in found for why in why_not_live(each, max_failing_s=self._max_failing_s)
        ]
        return verdict({"live": not problems, "reasons": problems}, is_good=not problems)

    async def _ready(self) -> Answer:
        reasons = self._reasons(await reports(self._group.workers(), "health"))
        found = {"ready": not reasons, "draining": self._group.is_draining, "reasons": reasons}
        return verdict(found, is_good=not reasons)

    def _reasons(self, found: list[ProcessReport]) -> list[str]:
        if self._group.is_draining:
            return ["the app is draining"]
        return [why for each in found for why in why_not_ready(each)]

    def _is_ill(self, report: ProcessReport) -> bool:
        """As `/livez` would have it; the reasons of `/health` are those of readiness."""
        if report.found is not None:
            reasons = [] if report.found.get("live", True) else ["it says so"]
            report = attrs.evolve(report, found={"reasons": reasons})
        return bool(why_not_live(report, max_failing_s=self._max_failing_s))


# Serving the health and the control of several processes while a block runs.


@asynccontextmanager
async def serving_workers(
    group: WorkerGroup, options: HealthOptions | None, clock: Clock
) -> AsyncIterator[WorkersProbes]:
    """Serve the health of several processes, and their control, until the block ends; gives what
    answers for all of them, and serves nothing without options.
    """
    version = await asyncio.to_thread(installed_version)
    probes = WorkersProbes(group, options, clock, version=version)
    async with AsyncExitStack() as stack:
        if options is not None:
            control = WorkersControl(group, probes)
            await listen(stack, options, clock, (probes.answer, control.answer))
        yield probes
