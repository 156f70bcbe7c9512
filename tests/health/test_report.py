"""Reports: what is ready, what is alive, and what an error may say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import attrs
import pytest

from pump.errors import ConnectionFailed
from pump.health import HealthOptions
from pump.health.probes import SubscriptionHealth, Watchdog, shown, why_not_ready

OPTIONS = HealthOptions(port=0)
WELL = SubscriptionHealth(
    name="orders",
    queue="orders",
    state="running",
    asked="run",
    concurrency=10,
    wait_s=20.0,
    has_been_answered=True,
    last_poll_age_s=3.0,
)


def health(**changes: Any) -> SubscriptionHealth:
    return attrs.evolve(WELL, **changes)


@pytest.mark.parametrize(
    "found",
    [
        health(),
        health(last_poll_age_s=3_600.0),
        health(silence_s=50.0),
        health(failed_polls=2),
        health(state="paused", asked="pause", last_poll_age_s=3_600.0),
        health(state="draining", asked="drain"),
        health(state="drained", asked="drain"),
    ],
    ids=["runs", "hands full", "long poll", "a blip", "paused", "draining", "drained"],
)
def test_when_it_does_as_it_should_then_it_is_ready(found: SubscriptionHealth) -> None:
    assert why_not_ready(found, OPTIONS) is None


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (health(state="starting", last_error="E: x"), "its queues are not made yet (E: x)"),
        (health(state="failed", last_error="Defect"), "will be restarted (Defect)"),
        (health(state="stopped"), "it has stopped"),
        (health(state="draining", asked="run"), "it is draining"),
        (health(failed_polls=3, poll_error="E: away"), "3 receives in a row have failed (E: away)"),
        (health(silence_s=50.1), "a receive has been unanswered for 50 s"),
        (health(has_been_answered=False), "the broker has not answered yet"),
    ],
)
def test_when_it_does_not_then_the_reason_is_said(found: SubscriptionHealth, why: str) -> None:
    assert why in (why_not_ready(found, OPTIONS) or "")


def test_when_the_limits_are_chosen_then_they_are_kept() -> None:
    options = HealthOptions(port=0, poll_grace=timedelta(seconds=1), max_failed_polls=1)

    assert why_not_ready(health(silence_s=21.5), options) is not None
    assert why_not_ready(health(failed_polls=1), options) is not None


# -- watchdog -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found",
    [
        health(failed_polls=1_000, silence_s=9_999.0),
        health(state="stopped"),
        health(state="starting"),
        health(state="paused", last_poll_age_s=99_999.0),
        health(running=10, in_hand=20, last_poll_age_s=99_999.0),
        health(state="failed", failing_s=299.0),
    ],
    ids=["broker away", "stopped", "starting", "paused", "slow handlers", "failing a while"],
)
def test_when_a_restart_would_not_help_then_nobody_is_killed(found: SubscriptionHealth) -> None:
    watchdog = Watchdog(OPTIONS)

    assert [watchdog.problems([found], moment) for moment in (0.0, 1e6)] == [[], []]


def test_when_pumps_break_on_and_on_then_a_restart_is_asked_for() -> None:
    [complaint] = Watchdog(OPTIONS).problems([health(state="failed", failing_s=301.0)], 0.0)

    assert complaint == "orders: has been breaking for 301 s"


def test_when_it_is_stuck_at_every_look_for_a_minute_then_a_restart_is_asked_for() -> None:
    watchdog = Watchdog(OPTIONS)
    stuck = health(is_stuck=True)

    assert [watchdog.problems([stuck], moment) for moment in (0.0, 30.0, 60.0)] == [[], [], []]
    assert watchdog.problems([stuck], 61.0) == ["orders: has not tried to receive for 61 s"]


def test_when_messages_are_in_flight_and_nothing_handles_them_then_a_restart_is_asked_for() -> None:
    """R93."""
    watchdog = Watchdog(OPTIONS)
    idle = health(unattended=2)

    assert watchdog.problems([idle], 0.0) == []
    assert watchdog.problems([idle], 61.0) == [
        "orders: has had 2 messages in flight that nothing handles for 61 s"
    ]


def test_when_it_was_seen_receiving_in_between_then_it_is_not_stuck() -> None:
    watchdog = Watchdog(OPTIONS)
    for moment in range(0, 600, 10):
        found = health(is_stuck=moment % 50 != 0)
        assert watchdog.problems([found], float(moment)) == []


# -- errors -------------------------------------------------------------------------------------


def test_when_an_error_is_ours_then_its_words_are_shown() -> None:
    assert (
        shown(ConnectionFailed("broker", "away")) == "ConnectionFailed: cannot reach broker: away"
    )


def test_when_an_error_is_not_ours_then_only_its_kind_is_shown() -> None:
    """R57: it may quote a body or a password."""
    assert shown(ValueError("password=hunter2")) == "ValueError"


def test_when_an_error_is_endless_then_its_beginning_is_shown() -> None:
    assert len(shown(ConnectionFailed("broker", "x" * 10_000)) or "") == 500
