"""Probes of a crew: what `probes.py` says of one process, said of several together."""

from __future__ import annotations

from http import HTTPStatus

import attrs

from ..clock import Clock
from ..observability.metrics_text import CONTENT_TYPE
from . import metrics_sum
from .crew import Crew, ask_all, reports
from .crew_report import ProcessReport, merged_subscriptions, why_not_live, why_not_ready
from .options import HealthOptions
from .probes import KNOWN as PROBES, refuse_changes, verdict
from .wire import Answer, Refused, Request


class CrewProbes:
    """Answers about all processes of a run, by asking each of them."""

    def __init__(
        self, crew: Crew, options: HealthOptions | None, clock: Clock, *, version: str
    ) -> None:
        self._crew = crew
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
        found = await reports(self._crew.members(), "health")
        reasons = self._reasons(found)
        documents = [each.found for each in found if each.found is not None]
        return {
            "live": not any(map(self._is_ill, found)),
            "ready": not reasons,
            "draining": self._crew.is_draining,
            "reasons": reasons,
            "version": self._version,
            "gateway": documents[0].get("gateway") if documents else None,
            "uptime_s": round(self._clock.now_s() - self._started_at_s, 3),
            "processes": [each.as_json() for each in found],
            "subscriptions": merged_subscriptions(found, self._crew.counted()),
        }

    async def metrics(self) -> bytes:
        """The metrics of all, as one text; `Refused` when no process has any."""
        await ask_all(self._crew.members(), Request(method="GET", path=("metrics",)))
        # Not the answers: who did not answer, or has ended meanwhile, counts as last heard of.
        measured = self._crew.measured()
        if not measured:
            raise Refused(
                HTTPStatus.NOT_FOUND, "this app's telemetry has no metrics for Prometheus to fetch"
            )
        return metrics_sum.as_text(measured)

    async def _live(self) -> Answer:
        found = await reports(self._crew.members(), "livez")
        complaints = [
            why for each in found for why in why_not_live(each, max_failing_s=self._max_failing_s)
        ]
        return verdict({"live": not complaints, "reasons": complaints}, is_good=not complaints)

    async def _ready(self) -> Answer:
        reasons = self._reasons(await reports(self._crew.members(), "health"))
        found = {"ready": not reasons, "draining": self._crew.is_draining, "reasons": reasons}
        return verdict(found, is_good=not reasons)

    def _reasons(self, found: list[ProcessReport]) -> list[str]:
        if self._crew.is_draining:
            return ["the app is draining"]
        return [why for each in found for why in why_not_ready(each)]

    def _is_ill(self, report: ProcessReport) -> bool:
        """As `/livez` would have it; the reasons of `/health` are those of readiness."""
        if report.found is not None:
            reasons = [] if report.found.get("live", True) else ["it says so"]
            report = attrs.evolve(report, found={"reasons": reasons})
        return bool(why_not_live(report, max_failing_s=self._max_failing_s))
