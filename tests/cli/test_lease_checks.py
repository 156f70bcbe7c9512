"""Leases against observed handler times: what `pump doctor` concludes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pump import Command, Subscription
from pump.cli.doctor import lease_findings
from pump.findings import Finding, HandlerTimes, Level

TWELVE_HOURS_S = 43_200.0


class PlaceOrder(Command):
    """An order."""


def times(p99_s: float = 1.0, max_s: float = 2.0, **fields: Any) -> HandlerTimes:
    figures = {"count": 12_480, "mean_s": 0.2, "p50_s": 0.1, "observed_at_s": 0.0, **fields}
    return HandlerTimes(p99_s=p99_s, max_s=max_s, **figures)


def found(
    observed: HandlerTimes | None,
    *,
    max_lease_s: float | None = TWELVE_HOURS_S,
    lease_s: float = 30.0,
    **fields: Any,
) -> list[Finding]:
    subscription = Subscription(
        queue="orders", request=PlaceOrder, lease=timedelta(seconds=lease_s), **fields
    )
    known = {} if observed is None else {"orders": observed}
    return lease_findings(subscription, known, max_lease_s)


def the_only(findings: list[Finding]) -> Finding:
    [finding] = findings
    assert finding.subject == "subscription orders"
    return finding


def test_when_the_lease_fits_then_the_times_are_shown() -> None:
    finding = the_only(found(times()))

    assert finding == Finding(
        Level.OK,
        "subscription orders",
        "handlers took 100ms (median), 1.0s (p99), 2.0s at most, of 12,480; "
        "the lease is 30.0s, renewed",
    )


def test_when_nothing_was_observed_then_nothing_is_said() -> None:
    assert found(None) == []


def test_when_leases_are_renewed_then_handlers_may_take_longer_than_one() -> None:
    assert the_only(found(times(120, 600))).level is Level.OK


@pytest.mark.parametrize(
    ("observed", "prefetch"),
    [(times(20, 25), None), (times(29, 31), 0), (times(31, 31), 0)],
    ids=["waits for another one first", "the slowest", "most"],
)
def test_when_leases_are_not_renewed_and_handlers_take_longer_then_it_is_a_warning(
    observed: HandlerTimes, prefetch: int | None
) -> None:
    finding = the_only(found(observed, renew=False, prefetch=prefetch))

    assert finding.level is Level.WARNING
    assert "handled twice" in finding.detail
    assert finding.remedy == "set renew=True, lengthen lease, or shorten prefetch"


def test_when_leases_are_not_renewed_but_last_long_enough_then_all_is_well() -> None:
    assert the_only(found(times(10, 14), renew=False)).level is Level.OK
    assert the_only(found(times(20, 25), renew=False, prefetch=0)).level is Level.OK


def test_when_leases_were_lost_and_are_not_renewed_then_it_is_an_error() -> None:
    """Law 3: a handler whose lease ends is told to stop, so its time is never seen in full."""
    finding = the_only(found(times(29, 29, lost_count=3), renew=False))

    assert finding.level is Level.ERROR
    assert finding.detail.startswith("3 lease(s) ended before their message was settled")
    assert finding.remedy == "set renew=True, or lengthen lease (30.0s)"


def test_when_leases_were_lost_though_renewed_then_the_log_is_where_to_look() -> None:
    finding = the_only(found(times(lost_count=1)))

    assert finding.level is Level.WARNING
    assert "though leases are renewed" in finding.detail
    assert "lease.lost" in finding.remedy


def test_when_every_handler_lost_its_lease_then_nothing_is_said_of_their_times() -> None:
    nothing = HandlerTimes(
        count=0, mean_s=0, p50_s=0, p99_s=0, max_s=0, lost_count=5, observed_at_s=0
    )

    assert the_only(found(nothing, renew=False, lease_s=3_600)).level is Level.ERROR


def test_when_a_handler_came_near_the_providers_ceiling_then_smaller_work_is_advised() -> None:
    finding = the_only(found(times(10, 40_000)))

    assert finding.level is Level.WARNING
    assert finding.detail == "a handler took 11h 6m, and no lease is kept for longer than 12h"
    assert finding.remedy == "split the work into smaller messages"


def test_when_a_handler_came_near_the_subscriptions_own_ceiling_then_it_can_be_lifted() -> None:
    observed = times(10, 55)

    finding = the_only(found(observed, max_lease=timedelta(minutes=1)))

    assert finding.level is Level.WARNING
    assert finding.remedy.endswith("or lengthen max_lease")


def test_when_nothing_limits_how_long_a_lease_is_kept_then_there_is_no_ceiling() -> None:
    assert the_only(found(times(10, 400_000), max_lease_s=None)).level is Level.OK


@pytest.mark.parametrize(
    ("renew", "remedy"),
    [(True, "shorten lease; renewal keeps what takes longer"), (False, "shorten lease")],
)
def test_when_the_lease_is_far_longer_than_needed_then_recovery_is_slow(
    renew: bool, remedy: str
) -> None:
    finding = the_only(found(times(), lease_s=3_600, renew=renew))

    assert finding.level is Level.WARNING
    assert "after a crash" in finding.detail
    assert finding.remedy == remedy


@pytest.mark.parametrize(("lease_s", "max_s"), [(300, 0.01), (3_600, 360)])
def test_when_the_lease_is_somewhat_longer_than_needed_then_that_is_fine(
    lease_s: float, max_s: float
) -> None:
    assert the_only(found(times(0.01, max_s), lease_s=lease_s)).level is Level.OK


def test_when_the_lease_is_longer_than_the_gateway_grants_then_it_is_an_error() -> None:
    finding = the_only(found(None, lease_s=50_000))

    assert finding.level is Level.ERROR
    assert finding.detail == "the lease is 13h 53m, but the gateway grants 12h at most"
