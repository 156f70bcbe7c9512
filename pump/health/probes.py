"""Probes, for orchestrators, scrapers and operators. Changes nothing, shows no secret.

| path      | says                                            | status                         |
|-----------|-------------------------------------------------|--------------------------------|
| `/livez`  | whether a restart would help                    | 200, or 503 when it would      |
| `/readyz` | whether every subscription does what it should  | 200, or 503 and which and why  |
| `/health` | everything that is known                        | 200                            |
| `/metrics`| the telemetry's metrics, if it has them         | 200, or 404                    |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import attrs

from ..clock import Clock
from ..dispatcher import Dispatcher
from ..errors import PumpError, leaves, text_of
from ..http.wire import Answer, Refused, Request, refuse_changes
from ..observability.metrics_catalogue import CONTENT_TYPE
from ..observability.telemetry import TextMetrics
from ..performer import STEADY_S, DesiredState, Performer, PumpState
from .options import HealthOptions

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
            "live": not self._problems(subscriptions),
            "ready": not reasons,
            "draining": self._dispatcher.is_draining,
            "reasons": reasons,
            "version": self._identity.version,
            "gateway": self._identity.gateway,
            "uptime_s": round(self._clock.now_s() - self._identity.started_at_s, 3),
            "subscriptions": [each.as_json() for each in subscriptions],
        }

    def _live(self) -> Answer:
        problems = self._problems(self.look())
        return verdict({"live": not problems, "reasons": problems}, is_good=not problems)

    def _problems(self, subscriptions: list[SubscriptionHealth]) -> list[str]:
        return self._watchdog.problems(subscriptions, self._clock.now_s())

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


def verdict(found: dict[str, object], *, is_good: bool) -> Answer:
    """A document whose status says it too."""
    return Answer.of(found, HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE)


# Report: what is known of each subscription, and whether that is healthy. Pure.
#
# | the subscription                       | is ready     | is alive                              |
# |----------------------------------------|--------------|---------------------------------------|
# | has no queues yet                      | no           | yes                                   |
# | runs, and the broker answers           | yes          | yes                                   |
# | runs, and the broker does not          | no           | yes: a restart would not bring it back|
# | runs with full hands, asks for nothing | yes          | yes                                   |
# | does not ask though it should          | yes          | not when it stays so                  |
# | has messages in flight, runs nothing   | yes          | not when it stays so                  |
# | is paused, or drained by its name      | yes: as told | yes                                   |
# | broke, and will be restarted           | no           | not when that goes on and on          |
# | stopped for good                       | no           | yes: an operator should look first    |
# | drains with the whole app              | no           | yes                                   |

_MAX_TEXT = 500
_COUNTS = (
    "received",
    "processed",
    "retried",
    "dead_lettered",
    "invalid",
    "released",
    "leases_lost",
    "restarts",
)


@attrs.frozen(kw_only=True)
class SubscriptionHealth:
    """One subscription at one moment."""

    name: str
    queue: str
    state: str
    asked: str
    concurrency: int
    in_hand: int = 0
    running: int = 0
    wait_s: float = 0.0
    has_been_answered: bool = False
    """Whether the broker has made its queues, or answered a receive."""
    last_poll_age_s: float | None = None
    """How long ago a receive last succeeded, None before the first."""
    silence_s: float = 0.0
    """For how long a receive has been unanswered."""
    failed_polls: int = 0
    """Receives that failed in a row."""
    failing_s: float | None = None
    """For how long pumps have been breaking; None when the present one is steady."""
    is_stuck: bool = False
    unattended: int = 0
    """Messages in flight that nothing handles."""
    poll_error: str | None = None
    """What the last receive failed by, None once one has succeeded."""
    last_error: str | None = None
    counts: Mapping[str, int] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, object]:
        """What the endpoints show."""
        return {
            "name": self.name,
            "queue": self.queue,
            "state": self.state,
            "asked": self.asked,
            "concurrency": self.concurrency,
            "in_hand": self.in_hand,
            "running": self.running,
            "last_poll_age_s": _rounded(self.last_poll_age_s),
            "unanswered_s": _rounded(self.silence_s),
            "failed_polls": self.failed_polls,
            "last_error": self.last_error,
            "counts": dict(self.counts),
        }


def look_at(performer: Performer, now_s: float) -> SubscriptionHealth:
    """What a subscription's pump does at this moment."""
    pump, stats = performer.pump, performer.stats
    polls = None if pump is None else pump.polls
    polled_at_s = stats.last_receive_at_s
    poll_error = None if polls is None else polls.last_error
    return SubscriptionHealth(
        name=performer.subscription.name,
        queue=performer.subscription.queue,
        state=performer.state,
        asked=performer.asked,
        concurrency=performer.concurrency,
        in_hand=0 if pump is None else pump.in_flight,
        running=0 if pump is None else pump.running_count,
        wait_s=performer.subscription.wait.total_seconds(),
        has_been_answered=polled_at_s is not None or performer.reached_at_s is not None,
        last_poll_age_s=None if polled_at_s is None else now_s - polled_at_s,
        silence_s=0.0 if polls is None else polls.silence_s(now_s),
        failed_polls=0 if polls is None else polls.failures_in_a_row,
        failing_s=_failing_s(performer, now_s),
        is_stuck=pump is not None and pump.is_stuck,
        unattended=0 if pump is None else pump.unattended_count,
        poll_error=shown(poll_error),
        last_error=shown(poll_error or performer.last_error),
        counts={name: getattr(stats, name) for name in _COUNTS},
    )


def shown(error: Exception | None) -> str | None:
    """An error in words that any client may read. What others raise may quote a message or a
    password, so of that only the kind is shown; the log has the rest.
    """
    if error is None:
        return None
    return ", ".join(dict.fromkeys(map(_shown_one, leaves(error))))[:_MAX_TEXT]


def _shown_one(error: BaseException) -> str:
    kind = type(error).__name__
    return f"{kind}: {text_of(error)}" if isinstance(error, PumpError) else kind


def why_not_ready(health: SubscriptionHealth, options: HealthOptions) -> str | None:
    """Why the subscription does not do what it should, None when it does."""
    error = _in_brackets(health.last_error)
    match health.state:
        case PumpState.STARTING:
            return f"its queues are not made yet{error}"
        case PumpState.FAILED:
            return f"its pump broke and will be restarted{error}"
        case PumpState.STOPPED:
            return f"it has stopped{error}"
        case PumpState.DRAINING if health.asked != DesiredState.DRAIN:
            return f"it is draining{error}"
        case PumpState.RUNNING:
            return _why_not_answered(health, options)
        case _:
            return None


def _why_not_answered(health: SubscriptionHealth, options: HealthOptions) -> str | None:
    error = _in_brackets(health.poll_error)
    if health.failed_polls >= options.max_failed_polls:
        return f"{health.failed_polls} receives in a row have failed{error}"
    if health.silence_s > health.wait_s + options.poll_grace.total_seconds():
        return f"a receive has been unanswered for {health.silence_s:.0f} s{error}"
    if not health.has_been_answered:
        return f"the broker has not answered yet{error}"
    return None


class Watchdog:
    """Finds pumps that do not come back by themselves, though nothing is wrong outside.

    That a pump is stuck can be true for an instant of any pump, so it has to be so at every look
    over `max_stuck`.
    """

    def __init__(self, options: HealthOptions) -> None:
        self._max_failing_s = options.max_failing.total_seconds()
        self._max_stuck_s = options.max_stuck.total_seconds()
        self._stuck_since_s: dict[str, float] = {}

    def problems(self, subscriptions: Sequence[SubscriptionHealth], now_s: float) -> list[str]:
        """Why the process should be restarted, nothing when it should not."""
        found = []
        for each in subscriptions:
            stuck_s = self._stuck_s(each, now_s)
            if stuck_s > self._max_stuck_s:
                found.append(f"{each.name}: {_stuck_why(each)} for {stuck_s:.0f} s")
            elif each.failing_s is not None and each.failing_s > self._max_failing_s:
                found.append(f"{each.name}: has been breaking for {each.failing_s:.0f} s")
        return found

    def _stuck_s(self, health: SubscriptionHealth, now_s: float) -> float:
        if not (health.is_stuck or health.unattended):
            self._stuck_since_s.pop(health.name, None)
            return 0.0
        return now_s - self._stuck_since_s.setdefault(health.name, now_s)


def _stuck_why(health: SubscriptionHealth) -> str:
    if health.unattended:
        return f"has had {health.unattended} messages in flight that nothing handles"
    return "has not tried to receive"


def _failing_s(performer: Performer, now_s: float) -> float | None:
    has_ended = performer.state in (PumpState.DRAINED, PumpState.STOPPED)
    if performer.failing_since_s is None or has_ended:
        return None
    started_at_s = performer.started_at_s
    if performer.pump is not None and started_at_s is not None and now_s - started_at_s > STEADY_S:
        return None
    return now_s - performer.failing_since_s


def _in_brackets(error: str | None) -> str:
    return "" if error is None else f" ({error})"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
