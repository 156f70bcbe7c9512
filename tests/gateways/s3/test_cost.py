"""The cost tool is held to requests that were counted: both layouts, one workload after another."""

from __future__ import annotations

from typing import Any

import pytest

from gateways.s3.cost import Design, S3Prices, Workload, estimate
from gateways.s3.layout import Layout

from .counted import counted

ALONE: dict[str, dict[str, Any]] = {
    "as it is called without options": {"messages": 1000},
    "one message a send": {"messages": 300, "batch": 1},
    "a hundred messages a send": {"messages": 1500, "batch": 100, "consumers": 100},
    "one message a receive": {"messages": 500, "receive": 1},
    "a store far away": {"messages": 1000, "consumers": 50, "latency_s": 0.2},
    "leases that are renewed": {"messages": 100, "handler_s": 70.0},
    "large bodies": {"messages": 500, "batch": 100, "body_bytes": 20_000},
    "a steady pace": {"messages": 300, "rate": 5.0},
    "a day's end": {"messages": 100, "idle_s": 600.0},
}
SHARED: dict[str, dict[str, Any]] = {
    "two processes": {"messages": 750, "consumers": 20, "processes": 2},
    "two processes and single messages": {
        "messages": 300,
        "batch": 1,
        "consumers": 20,
        "processes": 2,
    },
    "four processes": {"messages": 1000, "consumers": 40, "processes": 4},
    "four processes and large batches": {
        "messages": 1000,
        "batch": 100,
        "consumers": 40,
        "processes": 4,
    },
}


def ratios(layout: Layout, workload: Workload) -> tuple[float, float]:
    """Estimated by counted: of billable requests, and of dollars."""
    found, really = estimate(Design(layout.value), workload).total, counted(layout, workload)
    prices = S3Prices()
    return found.billable / really.billable, found.dollars(prices) / really.dollars(prices)


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("workload", ALONE.values(), ids=ALONE)
def test_when_a_process_has_a_queue_to_itself_then_its_requests_are_known_within_an_eighth(
    layout: Layout, workload: dict[str, Any]
) -> None:
    """R50."""
    assert ratios(layout, Workload(**workload)) == pytest.approx((1.0, 1.0), rel=0.125)


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("workload", SHARED.values(), ids=SHARED)
def test_when_processes_share_a_queue_then_their_requests_are_known_within_a_fifth(
    layout: Layout, workload: dict[str, Any]
) -> None:
    """R50: how often they meet is up to chance."""
    assert ratios(layout, Workload(**workload)) == pytest.approx((1.0, 1.0), rel=0.2)
