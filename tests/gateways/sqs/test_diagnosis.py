"""The diagnosis of SQS queues: that they exist, and are of the right kind (R22)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateways.sqs.doctor import QueueFacts
from pump.errors import ConfigurationError
from pump.findings import Level

from .cases import OTHER_ARN, a_case, arn_of, facts, missing, notes, problems, the_only

# -- well -----------------------------------------------------------------------------------------


def test_when_all_is_well_then_it_is_said_how_long_messages_are_kept() -> None:
    case = a_case(invalid="odd")

    assert problems(case) == []
    assert notes(case)[0] == (
        "queue 'orders' keeps messages for 4d; dead-letter queue 'dead' keeps messages for 14d; "
        "invalid-message queue 'odd' keeps messages for 14d"
    )


def test_when_there_is_no_dead_letter_queue_then_others_warn_of_it() -> None:
    assert problems(a_case(dead=None)) == []


# -- existence (R22) ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["validate", "assume"])
@pytest.mark.parametrize(
    ("queue", "role"),
    [("orders", "queue"), ("dead", "dead-letter queue"), ("odd", "invalid-message queue")],
)
def test_when_a_queue_is_missing_and_nobody_makes_it_then_it_is_an_error(
    make: str, queue: str, role: str
) -> None:
    finding = the_only(a_case(missing(queue), invalid="odd", make_channels=make), Level.ERROR)

    assert finding.detail == f"{role} {queue!r} does not exist, and make_channels is {make!r}"
    assert "make_channels='create'" in finding.remedy
    assert "may not see" in finding.remedy


def test_when_a_queue_is_missing_and_the_app_makes_it_then_that_is_fine() -> None:
    case = a_case(missing("orders"), missing("dead"))

    assert problems(case) == []
    assert notes(case) == [
        "queue 'orders' will be made when the app opens",
        "dead-letter queue 'dead' will be made when the app opens",
    ]


def test_when_a_missing_queue_belongs_to_somebody_else_then_it_is_an_error() -> None:
    finding = the_only(a_case(missing(OTHER_ARN, is_ours=False), dead=OTHER_ARN), Level.ERROR)

    assert "is not the app's to make" in finding.detail


def test_when_a_queue_cannot_be_asked_for_then_the_reason_is_told_once() -> None:
    fault = ConfigurationError("queue", "no name!", "use letters")
    odd = QueueFacts(queue="no name!", trouble=fault)

    finding = the_only(a_case(odd, dead="no name!", max_receive_count=5), Level.ERROR)

    assert (finding.detail, finding.remedy) == ("queue='no name!' cannot work", "use letters")


# -- what the app asks for ------------------------------------------------------------------------


def test_when_the_options_cannot_work_then_it_is_an_error() -> None:
    finding = the_only(a_case(options={"retention": "long"}), Level.ERROR)

    assert "QueueSpec.options['retention']" in finding.detail


@pytest.mark.parametrize(
    ("make", "level"),
    [("create", Level.WARNING), ("assume", Level.WARNING), ("validate", Level.ERROR)],
)
def test_when_a_queue_is_not_as_it_was_asked_for_then_that_is_told(make: str, level: Level) -> None:
    case = a_case(options={"retention": timedelta(days=7)}, make_channels=make)

    finding = the_only(case, level)

    assert finding.detail == (
        "queue 'orders' is not as it was asked for: "
        "MessageRetentionPeriod is 345600, asked for 604800"
    )


def test_when_native_redrive_was_asked_for_and_is_not_there_then_that_is_told() -> None:
    finding = the_only(a_case(max_receive_count=9), Level.WARNING)

    assert "it has no redrive policy, asked for 9" in finding.detail


def test_when_native_redrive_is_as_it_was_asked_for_then_all_is_well() -> None:
    source = facts("orders", redrive=(arn_of("dead"), "9"))

    assert problems(a_case(source, max_receive_count=9)) == []


def test_when_the_dead_letter_queue_cannot_be_read_then_nothing_is_compared_with_it() -> None:
    dead = QueueFacts(queue="dead")

    assert problems(a_case(dead, max_receive_count=9)) == []


# -- the kind of the dead-letter queue ------------------------------------------------------------


def test_when_a_fifo_queues_dead_letters_go_to_a_standard_queue_then_they_lose_their_order() -> (
    None
):
    finding = the_only(a_case(queue="orders.fifo", dead="dead", name="orders"), Level.WARNING)

    assert "lose their order" in finding.detail
    assert finding.remedy == "name a FIFO queue, such as 'orders-dead.fifo'"


@pytest.mark.parametrize(
    ("queue", "dead"), [("orders.fifo", "dead.fifo"), ("orders", "dead.fifo"), ("orders", "dead")]
)
def test_when_no_order_is_lost_then_the_kinds_may_differ(queue: str, dead: str) -> None:
    """The pump itself sends rejected messages, to either kind."""
    assert problems(a_case(queue=queue, dead=dead, name="orders")) == []


@pytest.mark.parametrize(
    ("queue", "dead", "kind"),
    [("orders.fifo", "dead", "FIFO"), ("orders", "dead.fifo", "standard")],
)
def test_when_sqs_is_to_move_messages_to_another_kind_then_it_is_an_error(
    queue: str, dead: str, kind: str
) -> None:
    case = a_case(queue=queue, dead=dead, name="orders", max_receive_count=9)

    assert f"only move to a {kind} queue" in the_only(case, Level.ERROR).remedy
