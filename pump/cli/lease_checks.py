"""Lease checks: does a lease last as long as handlers take, by what a running pump has seen?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..app import App
from ..clock import SYSTEM_CLOCK
from ..durations import format_duration
from ..findings import Finding, error, ok, warning
from ..handler_times import HandlerTimes
from ..stores.handler_times import HandlerTimesFile
from ..subscription import Subscription

_NEVER_LONG_S = 300.0
"""A lease up to this is not called too long: nobody minds such a wait after a crash."""
_AMPLE = 10
_NEAR = 0.8


async def observed_times(app: App) -> tuple[dict[str, HandlerTimes], list[Finding]]:
    """The handler times on record, by subscription, and what to say about the record itself."""
    file = HandlerTimesFile.beside(app.spill)
    if file is None or not app.subscriptions:
        return {}, []
    recorded = await file.read()
    names = {each.name for each in app.subscriptions}
    observed = {name: times for name, times in recorded.items() if name in names}
    if not observed:
        remedy = "run the app for a while, and leases are compared with them"
        return {}, [ok("handler times", f"none on record in {file.path} yet", remedy)]
    newest_s = max(times.observed_at_s for times in observed.values())
    age = format_duration(SYSTEM_CLOCK.time_s() - newest_s)
    detail = f"of {len(observed)} subscription(s) in {file.path}, {age} old"
    return observed, [ok("handler times", detail)]


def lease_findings(
    subscription: Subscription, observed: Mapping[str, HandlerTimes], max_lease_s: float | None
) -> list[Finding]:
    """Compare a lease with what handlers took, and with the longest that the gateway grants."""
    subject = f"subscription {subscription.name}"
    found = list(_refused(subscription, subject, max_lease_s))
    times = observed.get(subscription.name)
    if times is None:
        return found
    found += _lost(subscription, subject, times)
    found += _too_short(subscription, subject, times)
    found += _at_the_ceiling(subscription, subject, times, max_lease_s)
    found += _too_long(subscription, subject, times)
    return found or [_as_it_should_be(subscription, subject, times)]


def _refused(
    subscription: Subscription, subject: str, max_lease_s: float | None
) -> Iterator[Finding]:
    lease_s = subscription.lease.total_seconds()
    if max_lease_s is not None and lease_s > max_lease_s:
        yield error(
            subject,
            f"the lease is {format_duration(lease_s)}, but the gateway grants "
            f"{format_duration(max_lease_s)} at most",
            "shorten lease; renewal keeps what takes longer",
        )


def _lost(subscription: Subscription, subject: str, times: HandlerTimes) -> Iterator[Finding]:
    if not times.lost_count:
        return
    lost = f"{times.lost_count:,} lease(s) ended before their message was settled"
    if subscription.renew:
        yield warning(
            subject,
            f"{lost}, though leases are renewed: those messages were delivered again",
            "look for lease.lost in the log: the broker was out of reach, or a handler kept the "
            "event loop busy (a handler that is a plain function runs in a thread)",
        )
    else:
        yield error(
            subject,
            f"{lost}, and none is renewed: those messages were delivered again",
            f"set renew=True, or lengthen lease "
            f"({format_duration(subscription.lease.total_seconds())})",
        )


def _too_short(subscription: Subscription, subject: str, times: HandlerTimes) -> Iterator[Finding]:
    if subscription.renew or times.lost_count:
        return
    lease_s = subscription.lease.total_seconds()
    # The lease runs from receipt, and a message may have to wait for those received before it.
    in_hand_s = times.p99_s * subscription.in_hand / subscription.concurrency
    if max(in_hand_s, times.max_s) > lease_s:
        yield warning(
            subject,
            f"handlers take {format_duration(times.p99_s)} (p99; {format_duration(times.max_s)} "
            f"at most), and a message may wait for others first; its lease ends after "
            f"{format_duration(lease_s)} and is not renewed: it would be handled twice",
            "set renew=True, lengthen lease, or shorten prefetch",
        )


def _at_the_ceiling(
    subscription: Subscription, subject: str, times: HandlerTimes, max_lease_s: float | None
) -> Iterator[Finding]:
    own_s = None if subscription.max_lease is None else subscription.max_lease.total_seconds()
    limits_s = [limit_s for limit_s in (own_s, max_lease_s) if limit_s is not None]
    if not subscription.renew or not limits_s or times.max_s <= _NEAR * min(limits_s):
        return
    is_own = own_s is not None and own_s == min(limits_s)
    yield warning(
        subject,
        f"a handler took {format_duration(times.max_s)}, and no lease is kept for longer than "
        f"{format_duration(min(limits_s))}",
        "split the work into smaller messages" + (", or lengthen max_lease" if is_own else ""),
    )


def _too_long(subscription: Subscription, subject: str, times: HandlerTimes) -> Iterator[Finding]:
    lease_s = subscription.lease.total_seconds()
    if not times.count or lease_s <= max(_NEVER_LONG_S, _AMPLE * times.max_s):
        return
    yield warning(
        subject,
        f"the lease is {format_duration(lease_s)}, but no handler took more than "
        f"{format_duration(times.max_s)}: after a crash, messages wait for the rest of it",
        "shorten lease" + ("; renewal keeps what takes longer" if subscription.renew else ""),
    )


def _as_it_should_be(subscription: Subscription, subject: str, times: HandlerTimes) -> Finding:
    lease = format_duration(subscription.lease.total_seconds())
    return ok(
        subject,
        f"handlers took {format_duration(times.p50_s)} (median), {format_duration(times.p99_s)} "
        f"(p99), {format_duration(times.max_s)} at most, of {times.count:,}; the lease is {lease}"
        f"{', renewed' if subscription.renew else ''}",
    )
