"""App checks: what would stop an app from running, or make it run badly. No broker needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..app import App
from ..app_parts import SPILL_REMEDY
from ..durations import format_duration
from ..errors import PumpError
from ..findings import Finding, Level, error, error_from, ok, warning
from ..mapping import Mapper
from ..stores.spill import SqliteSpill, perishing
from ..subscription import OnRoutingFailure, Subscription
from .reports import request_name


def app_findings(app: App, target: str) -> list[Finding]:
    """Look at an app as it was declared."""
    if not app.subscriptions:
        return [error("app", f"{target} subscribes to nothing", "app.subscribe(Subscription(…))")]
    findings = [ok("app", f"{target} loads; {len(app.subscriptions)} subscription(s)")]
    for subscription in app.subscriptions:
        findings += _subscription_findings(app, subscription)
    if not any(each.level is Level.ERROR for each in findings):
        findings += _remaining(app)
    return [*findings, *_data_folder(app)]


def _remaining(app: App) -> Iterator[Finding]:
    """What only the app as a whole can tell, such as two requests with one name."""
    try:
        app.check()
    except PumpError as fault:
        yield error_from("app", fault)


def _subscription_findings(app: App, subscription: Subscription) -> list[Finding]:
    subject = f"subscription {subscription.name}"
    found = [
        *_handling(app, subscription, subject),
        *_dead_letters(subscription, subject),
        *_leases(subscription, subject),
    ]
    return found or [ok(subject, f"{request_name(subscription)} from queue {subscription.queue!r}")]


def _handling(app: App, subscription: Subscription, subject: str) -> Iterator[Finding]:
    if subscription.request is None or subscription.resolver is not None:
        return
    try:
        app.registry.check(subscription.request)
        Mapper().check(subscription.request)
    except PumpError as fault:
        yield error_from(subject, fault)


def _dead_letters(subscription: Subscription, subject: str) -> Iterator[Finding]:
    if subscription.dead_letter_queue is None:
        yield warning(
            subject,
            "has no dead_letter_queue: messages that keep failing are discarded",
            f"set dead_letter_queue={subscription.queue + '-dead'!r}",
        )
    elif subscription.on_routing_failure is OnRoutingFailure.DELETE:
        yield warning(
            subject,
            "deletes rejected messages when their queue cannot be reached",
            "set on_routing_failure='spill'",
        )


def _leases(subscription: Subscription, subject: str) -> Iterator[Finding]:
    drain_s = subscription.drain_timeout.total_seconds()
    if not subscription.renew and drain_s > subscription.lease.total_seconds():
        yield warning(
            subject,
            f"a drain may take {format_duration(drain_s)}, but leases end after "
            f"{format_duration(subscription.lease.total_seconds())} and are not renewed: "
            f"messages would be handled twice",
            "set renew=True, lengthen lease, or shorten drain_timeout",
        )
    if subscription.max_lease is not None and drain_s > subscription.max_lease.total_seconds():
        yield warning(
            subject,
            f"a drain may take {format_duration(drain_s)}, longer than max_lease "
            f"({format_duration(subscription.max_lease.total_seconds())})",
            "lengthen max_lease, or shorten drain_timeout",
        )


def _data_folder(app: App) -> Iterator[Finding]:
    if not isinstance(app.spill, SqliteSpill):
        return
    folder = _nearest_existing(app.spill.path.absolute().parent)
    if os.access(folder, os.W_OK | os.X_OK):
        yield ok("data folder", f"{app.spill.path.parent} can be written")
        yield from _perishing(app, app.spill)
    else:
        yield error(
            "data folder",
            f"{folder} cannot be written, so rejected messages cannot be spilled",
            "give this user the right to, or choose another one with App(spill=…)",
        )


def _perishing(app: App, spill: SqliteSpill) -> Iterator[Finding]:
    spills = [each.on_routing_failure is OnRoutingFailure.SPILL for each in app.subscriptions]
    danger = perishing(spill.path) if any(spills) else None
    if danger is None:
        return
    what = (
        "spilled messages will be lost with it"
        if app.is_spill_chosen
        else "rejected messages are kept in their queue instead of spilled"
    )
    yield warning("spill", f"{spill.path} lies on {danger}: {what}", SPILL_REMEDY)


def _nearest_existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
