"""Gateway checks: can the broker be reached, does it have and support what the app needs?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..app import App
from ..clock import SYSTEM_CLOCK
from ..durations import format_duration
from ..errors import PumpError, StorageFailed
from ..findings import Finding, error, error_from, ok, warning
from ..handler_times import HandlerTimes
from ..ports import Examiner
from ..runtime import check_support
from ..subscription import MakeChannels
from .lease_checks import lease_findings
from .session import shown_gateway

_PATIENCE_S = 10.0
_EACH_S = 2.0
"""What a subscription adds: an examination may take several calls for each."""


async def gateway_findings(app: App, observed: Mapping[str, HandlerTimes]) -> list[Finding]:
    """Open the app's gateway, look around, and close it; nothing is sent or received."""
    where = shown_gateway(app)
    patience_s = _PATIENCE_S + _EACH_S * len(app.subscriptions)
    try:
        async with SYSTEM_CLOCK.timeout(patience_s), app:
            found = await _examined(app, where, observed)
            return found + _support(app) + _leases(app, observed)
    except TimeoutError:
        remedy = "check the address, the network and the broker"
        return [error("gateway", f"{where} did not answer in {patience_s:g} s", remedy)]
    except PumpError as fault:
        return [error_from("gateway", fault)]


async def spill_findings(app: App) -> list[Finding]:
    """Look whether rejected messages wait on disk."""
    try:
        count = len(await app.spill.all())
    except StorageFailed as fault:
        return [error_from("spill", fault)]
    if count:
        remedy = "pump spill ls, then pump spill flush; a running app sends them by itself"
        return [warning("spill", f"{count:,} rejected message(s) wait for their queue", remedy)]
    return [ok("spill", "empty")]


async def _examined(app: App, where: str, observed: Mapping[str, HandlerTimes]) -> list[Finding]:
    started_s = SYSTEM_CLOCK.now_s()
    if isinstance(app.gateway, Examiner):
        found = await app.gateway.examine(app.subscriptions, observed)
        took = format_duration(SYSTEM_CLOCK.now_s() - started_s)
        return [ok("gateway", f"{where} answered, and was examined in {took}"), *found]
    names = [stats.name for stats in await app.admin.queues()]
    took = format_duration(SYSTEM_CLOCK.now_s() - started_s)
    answered = ok("gateway", f"{where} answered in {took}; {len(names)} queue(s)")
    return [answered, *_missing_queues(app, names)]


def _leases(app: App, observed: Mapping[str, HandlerTimes]) -> list[Finding]:
    max_lease_s = app.gateway.capabilities.max_lease_s
    return [
        finding
        for subscription in app.subscriptions
        for finding in lease_findings(subscription, observed, max_lease_s)
    ]


def _support(app: App) -> list[Finding]:
    found = []
    for subscription in app.subscriptions:
        try:
            check_support(subscription, app.gateway)
        except PumpError as fault:
            found.append(error_from(f"subscription {subscription.name}", fault))
    return found


def _missing_queues(app: App, names: Collection[str]) -> list[Finding]:
    return [
        error(
            f"subscription {subscription.name}",
            f"queue {spec.name!r} does not exist, and make_channels is "
            f"{subscription.make_channels.value!r}",
            "create the queue, or set make_channels='create'",
        )
        for subscription in app.subscriptions
        if subscription.make_channels is not MakeChannels.CREATE
        for spec in subscription.queue_specs()
        if spec.name not in names
    ]
