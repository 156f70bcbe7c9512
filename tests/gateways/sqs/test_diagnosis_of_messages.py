"""The diagnosis of SQS queues: what becomes of messages in them, and who may touch them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gateways.sqs.doctor import DELETE, EXTEND, FIND, READ, RECEIVE, SEND, QueueFacts, QueueRedrive
from pump.backoff import Backoff
from pump.findings import HandlerTimes, Level
from pump.subscription import dead_letter, hybrid, retry

from .cases import OTHER_ARN, a_case, arn_of, facts, missing, notes, problems, the_only

# -- retention ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("days", "is_warned"), [(1, True), (4, False), (14, False)])
def test_when_the_pump_dead_letters_then_the_time_there_starts_anew(
    days: float, is_warned: bool
) -> None:
    case = a_case(facts("dead", days=days))

    assert bool(problems(case)) == is_warned
    for finding in problems(case):
        assert finding.level is Level.WARNING
        assert "keeps messages for 1d, and 'orders' for 4d" in finding.detail
        assert finding.remedy == "set its MessageRetentionPeriod to 1209600 (14 days)"


@pytest.mark.parametrize(("days", "is_warned"), [(1, True), (4, True), (5, False)])
def test_when_sqs_dead_letters_then_the_time_there_counts_from_the_first_send(
    days: float, is_warned: bool
) -> None:
    source = facts("orders", redrive=(arn_of("dead"), 9))
    case = a_case(source, facts("dead", days=days))

    assert bool(problems(case)) == is_warned
    for finding in problems(case):
        assert finding.level is Level.WARNING
        assert "counted from when they were first sent" in finding.detail
        assert "14 days" in finding.remedy


def test_when_no_queue_can_keep_them_longer_then_the_source_is_to_keep_them_shorter() -> None:
    source = facts("orders", days=14, redrive=(arn_of("dead"), 9))

    finding = the_only(a_case(source), Level.WARNING)

    assert finding.remedy.startswith("shorten the MessageRetentionPeriod of 'orders'")


def test_when_sqs_dead_letters_a_fifo_queue_then_the_time_there_starts_anew() -> None:
    source = facts("orders.fifo", redrive=(arn_of("dead.fifo"), 9))
    dead = facts("dead.fifo", days=4)

    assert problems(a_case(source, dead, queue="orders.fifo", dead="dead.fifo", name="orders")) == (
        []
    )


def test_when_the_invalid_messages_are_kept_too_briefly_then_that_is_told() -> None:
    finding = the_only(a_case(facts("odd", days=1), invalid="odd"), Level.WARNING)

    assert finding.detail.startswith("invalid-message queue 'odd' keeps messages for 1d")


def test_when_one_queue_takes_both_kinds_then_it_is_told_of_once() -> None:
    the_only(a_case(facts("dead", days=1), invalid="dead"), Level.WARNING)


# -- redrive by SQS itself (R20) ------------------------------------------------------------------


def test_when_sqs_moves_messages_elsewhere_then_that_queue_is_looked_at_too() -> None:
    source = facts("orders", redrive=(OTHER_ARN, 9))
    elsewhere = QueueFacts(queue=OTHER_ARN, attributes=facts("elsewhere", days=2).attributes)

    finding = the_only(a_case(source, elsewhere), Level.WARNING)

    assert finding.detail.startswith(f"redrive target {OTHER_ARN!r} keeps messages for 2d")


def test_when_sqs_moves_messages_to_a_queue_that_is_gone_then_it_is_an_error() -> None:
    source = facts("orders", redrive=(OTHER_ARN, 9))

    finding = the_only(a_case(source, missing(OTHER_ARN)), Level.ERROR)

    assert finding.detail == f"queue 'orders' redrives to {OTHER_ARN}, which does not exist"


def test_when_one_delivery_is_the_limit_then_it_is_a_warning() -> None:
    source = facts("orders", redrive=(arn_of("dead"), 1))

    finding = the_only(a_case(source), Level.WARNING)

    assert "maxReceiveCount of 1" in finding.detail
    assert finding.remedy == "raise maxReceiveCount to 5 or more"


@pytest.mark.parametrize(
    ("failure", "limit", "is_warned"),
    [
        (hybrid(5), 5, True),
        (hybrid(5), 6, False),
        (retry(5), 4, True),
        (retry(0), 2, False),
        (dead_letter(), 2, False),
    ],
)
def test_when_sqs_dead_letters_before_the_subscription_would_then_it_is_a_warning(
    failure: Any, limit: int, is_warned: bool
) -> None:
    """T5: N retries are N+1 deliveries."""
    source = facts("orders", redrive=(arn_of("dead"), limit))
    case = a_case(source, failure=failure)

    assert bool(problems(case)) == is_warned
    for finding in problems(case):
        assert finding.level is Level.WARNING
        assert f"after {limit} deliveries, but the subscription retries 5 times" in finding.detail
        assert finding.remedy == "raise maxReceiveCount above 5, or lower max_retries"


def test_when_the_queue_is_yet_to_be_made_then_the_limit_asked_for_counts() -> None:
    case = a_case(missing("orders"), max_receive_count=3, failure=hybrid(5))

    assert "after 3 deliveries" in the_only(case, Level.WARNING).detail


@pytest.mark.parametrize("policy", ["", "no JSON", "[]", '{"maxReceiveCount": 1}'])
def test_when_a_redrive_policy_cannot_be_read_then_there_is_none(policy: str) -> None:
    assert facts("orders", RedrivePolicy=policy).redrive is None


def test_when_a_redrive_policy_is_read_then_the_count_may_be_text() -> None:
    redrive = facts("orders", redrive=(OTHER_ARN, "7")).redrive

    assert redrive == QueueRedrive(target_arn=OTHER_ARN, max_receive_count=7)


# -- messages that grow too old -------------------------------------------------------------------


def test_when_retries_outlast_the_queues_retention_then_it_is_a_warning() -> None:
    backoff = Backoff(initial=timedelta(hours=1), maximum=timedelta(hours=12))

    finding = the_only(a_case(failure=hybrid(12, backoff=backoff)), Level.WARNING)

    assert finding.detail.startswith("12 retries may take 4d")
    assert "vanish without a dead letter" in finding.detail


def test_when_retries_are_done_before_the_message_expires_then_all_is_well() -> None:
    backoff = Backoff(initial=timedelta(hours=1), maximum=timedelta(hours=12))

    assert problems(a_case(failure=hybrid(10, backoff=backoff))) == []


def test_when_retries_go_on_for_ever_then_the_message_vanishes_one_day() -> None:
    """And SQS's own redrive, where there is one, comes before that."""
    finding = the_only(a_case(failure=retry(None)), Level.WARNING)

    assert finding.detail.startswith("retries go on for ever, and SQS deletes a message")

    redriven = facts("orders", redrive=(arn_of("dead"), 9))
    details = [each.detail for each in problems(a_case(redriven, failure=retry(None)))]
    assert any("the subscription retries for ever: SQS comes first" in each for each in details)


# -- the queue's own visibility timeout -----------------------------------------------------------


@pytest.mark.parametrize(("max_s", "is_told"), [(600.0, True), (29.0, False)])
def test_when_the_queues_own_visibility_timeout_is_too_short_then_others_are_thought_of(
    max_s: float, is_told: bool
) -> None:
    times = HandlerTimes(count=9, mean_s=1.0, p50_s=1.0, p99_s=1.0, max_s=max_s, observed_at_s=0.0)
    case = a_case(times=times)

    assert problems(case) == []
    assert any(
        "visibility timeout of 'orders' itself is 30.0s" in each for each in notes(case)
    ) == (is_told)


# -- permissions ----------------------------------------------------------------------------------


def test_when_permissions_were_tried_then_what_they_showed_is_told_and_what_not() -> None:
    assert notes(a_case())[-1] == (
        f"permissions granted: {DELETE} on 'orders', {EXTEND} on 'orders'; "
        f"not proven without using it: {RECEIVE} on 'orders', {SEND} on 'dead'"
    )


def test_when_permissions_are_denied_then_they_are_named_with_what_to_grant_them_on() -> None:
    source = facts("orders", granted=frozenset(), denied=frozenset({DELETE, EXTEND}))

    finding = the_only(a_case(source), Level.ERROR)

    assert finding.detail == f"{EXTEND}, {DELETE} on queue 'orders' are denied"
    assert finding.remedy == (
        f"allow {EXTEND}, {DELETE} on {arn_of('orders')} in the policy of the app's role"
    )


def test_when_sending_to_the_dead_letters_is_denied_then_it_is_known_before_the_first_one() -> None:
    finding = the_only(a_case(facts("dead", days=14, denied=frozenset({SEND}))), Level.ERROR)

    assert finding.detail == f"{SEND} on dead-letter queue 'dead' is denied"
    assert SEND not in notes(a_case(facts("dead", days=14, denied=frozenset({SEND}))))[-1]


def test_when_a_queue_cannot_be_found_by_its_name_then_its_url_would_do() -> None:
    source = QueueFacts(queue="orders", denied=frozenset({FIND}))

    finding = the_only(a_case(source), Level.ERROR)

    assert finding.remedy.endswith("or name the queue by its URL")
    assert RECEIVE not in notes(a_case(source))[-1]


def test_when_the_settings_cannot_be_read_then_the_app_still_works() -> None:
    source = QueueFacts(
        queue="orders", denied=frozenset({READ}), granted=frozenset({DELETE, EXTEND})
    )

    finding = the_only(a_case(source), Level.WARNING)

    assert finding.detail.endswith("is denied, so its settings were not examined")
    assert finding.remedy == f"allow {READ} on orders in the policy of the app's role"
