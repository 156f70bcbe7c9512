"""Gateway checks: can the broker be reached, does it have and support what the app needs?"""

from __future__ import annotations

from collections.abc import Collection

from ..app import App
from ..clock import SYSTEM_CLOCK
from ..errors import PumpError, StorageFailed
from ..runtime import check_support
from ..subscription import MakeChannels
from .durations import format_duration
from .findings import Finding, error, ok, warning
from .session import shown_gateway

_PATIENCE_S = 10.0


async def gateway_findings(app: App) -> list[Finding]:
    """Open the app's gateway, look around, and close it; nothing is sent or received."""
    started_s = SYSTEM_CLOCK.now_s()
    where = shown_gateway(app)
    try:
        async with SYSTEM_CLOCK.timeout(_PATIENCE_S), app:
            names = [stats.name for stats in await app.admin.queues()]
            took = format_duration(SYSTEM_CLOCK.now_s() - started_s)
            found = [ok("gateway", f"{where} answered in {took}; {len(names)} queue(s)")]
            return found + _support(app) + _missing_queues(app, names)
    except TimeoutError:
        remedy = "check the address, the network and the broker"
        return [error("gateway", f"{where} did not answer in {_PATIENCE_S:g} s", remedy)]
    except PumpError as fault:
        return [error("gateway", *str(fault).split("; ", 1))]


async def spill_findings(app: App) -> list[Finding]:
    """Look whether rejected messages wait on disk."""
    try:
        count = len(await app.spill.all())
    except StorageFailed as fault:
        return [error("spill", *str(fault).split("; ", 1))]
    if count:
        remedy = "pump spill ls, then pump spill flush; a running app sends them by itself"
        return [warning("spill", f"{count:,} rejected message(s) wait for their queue", remedy)]
    return [ok("spill", "empty")]


def _support(app: App) -> list[Finding]:
    found = []
    for subscription in app.subscriptions:
        try:
            check_support(subscription, app.gateway)
        except PumpError as fault:
            found.append(error(f"subscription {subscription.name}", *str(fault).split("; ", 1)))
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
