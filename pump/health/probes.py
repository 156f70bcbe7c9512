"""Probes: what an orchestrator, a scraper or a person may read. Changes nothing, shows no secret.

| path      | says                                            | status                         |
|-----------|-------------------------------------------------|--------------------------------|
| `/livez`  | whether a restart would help                    | 200, or 503 when it would      |
| `/readyz` | whether every subscription does what it should  | 200, or 503 and which and why  |
| `/health` | everything that is known                        | 200                            |
| `/metrics`| the telemetry's metrics, if it has them         | 200, or 404                    |
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import attrs

from ..clock import Clock
from ..dispatcher import Dispatcher
from ..observability.metrics_text import CONTENT_TYPE
from ..observability.telemetry import TextMetrics
from .options import HealthOptions
from .report import SubscriptionHealth, Watchdog, look_at, why_not_ready
from .wire import Answer, Refused, Request

KNOWN: Final = "/livez, /readyz, /health, /metrics"


@attrs.frozen(kw_only=True)
class Identity:
    """Who answers."""

    version: str
    gateway: str
    """Without its secrets."""
    started_at_s: float


class Probes:
    """Answers about one dispatcher."""

    def __init__(
        self, dispatcher: Dispatcher, options: HealthOptions, identity: Identity, clock: Clock
    ) -> None:
        self._dispatcher = dispatcher
        self._options = options
        self._identity = identity
        self._clock = clock
        self._watchdog = Watchdog(options)

    def answer(self, request: Request) -> Answer:
        """Answer a GET or HEAD."""
        refuse_changes(request)
        match request.path:
            case ("livez",):
                return self._live()
            case ("readyz",):
                return self._ready()
            case ("health",):
                return Answer.of(self.document())
            case ("metrics",):
                return self._metrics()
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, f"there is {KNOWN}")

    def look(self) -> list[SubscriptionHealth]:
        """Every subscription at this moment."""
        now_s = self._clock.now_s()
        return [look_at(each, now_s) for each in self._dispatcher.performers]

    def document(self) -> dict[str, object]:
        """Everything that is known."""
        subscriptions = self.look()
        reasons = self._reasons(subscriptions)
        return {
            "live": not self._complaints(subscriptions),
            "ready": not reasons,
            "draining": self._dispatcher.is_draining,
            "reasons": reasons,
            "version": self._identity.version,
            "gateway": self._identity.gateway,
            "uptime_s": round(self._clock.now_s() - self._identity.started_at_s, 3),
            "subscriptions": [each.as_json() for each in subscriptions],
        }

    def _live(self) -> Answer:
        complaints = self._complaints(self.look())
        return verdict({"live": not complaints, "reasons": complaints}, is_good=not complaints)

    def _complaints(self, subscriptions: list[SubscriptionHealth]) -> list[str]:
        return self._watchdog.complaints(subscriptions, self._clock.now_s())

    def _ready(self) -> Answer:
        reasons = self._reasons(self.look())
        found = {
            "ready": not reasons,
            "draining": self._dispatcher.is_draining,
            "reasons": reasons,
        }
        return verdict(found, is_good=not reasons)

    def _reasons(self, subscriptions: list[SubscriptionHealth]) -> list[str]:
        reasons = ["the app is draining"] if self._dispatcher.is_draining else []
        for each in subscriptions:
            why = why_not_ready(each, self._options)
            if why is not None:
                reasons.append(f"{each.name}: {why}")
        return reasons

    def _metrics(self) -> Answer:
        telemetry: object = self._dispatcher.runtime.telemetry
        if not isinstance(telemetry, TextMetrics):
            raise Refused(
                HTTPStatus.NOT_FOUND, "this app's telemetry has no metrics for Prometheus to fetch"
            )
        return Answer(body=telemetry.prometheus_text(), content_type=CONTENT_TYPE)


def refuse_changes(request: Request) -> None:
    """Raise `Refused` unless the request only reads."""
    if request.method == "POST":
        raise Refused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "nothing can be changed here; control has an address of its own",
            {"Allow": "GET, HEAD"},
        )


def verdict(found: dict[str, object], *, is_good: bool) -> Answer:
    """A document whose status says it too."""
    return Answer.of(found, HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE)
