"""What credits allow a pump far from SQS: the arithmetic, the table, and a real measurement."""

from __future__ import annotations

import attrs
import pytest

from benchmarks.catalogue import BY_NAME
from benchmarks.reading import Reading, Span
from benchmarks.rounds import Results
from benchmarks.sqs_latency.bounds import bound_of, share_of_bound
from benchmarks.sqs_latency.catalogue import FAR_MS, LATENCY_CONTENDERS, near_of
from benchmarks.sqs_latency.tables import latency_grid
from benchmarks.summary import aims

FIGURES = {
    "call_ms": 50.0,
    "credit_count": 90.0,
    "batch_count": 10.0,
    "poller_count": 8.0,
    "delete_call_count": 8.0,
}


def far(rate: float, **figures: float) -> Reading:
    span = Span(wall_s=5_000 / rate, cpu_s=0.0)
    return Reading(messages=5_000, spans={"consume": span}, figures=FIGURES | figures)


def near(rate: float = 10_000.0, cpu_us: float = 0.0) -> Reading:
    span = Span(wall_s=1000 / rate, cpu_s=cpu_us / 1000)
    return Reading(messages=1000, spans={"consume": span}, figures=FIGURES | {"call_ms": 0.2})


def test_a_credit_is_bound_for_a_receive_and_a_delete() -> None:
    bound = bound_of(far(800.0), near())

    assert bound.limit == "credits"
    assert bound.rate == pytest.approx(900.0)
    assert share_of_bound(far(810.0), near()) == pytest.approx(0.9)


def test_a_credit_is_bound_while_its_batch_is_worked_on() -> None:
    # ten messages of a millisecond each, beside twice 50 ms
    bound = bound_of(far(800.0), near(cpu_us=1000.0))

    assert bound.rate == pytest.approx(90 / 0.110)


@pytest.mark.parametrize(
    ("figures", "near_rate", "rate", "limit"),
    [
        ({"credit_count": 320.0}, 10_000.0, 1600.0, "pollers"),
        ({"credit_count": 320.0, "delete_call_count": 4.0}, 10_000.0, 800.0, "deletes"),
        ({"call_ms": 5.0}, 3_000.0, 3_000.0, "processor"),
    ],
)
def test_when_something_else_allows_less_than_the_credits_then_that_is_the_bound(
    figures: dict[str, float], near_rate: float, rate: float, limit: str
) -> None:
    bound = bound_of(far(700.0, **figures), near(near_rate))

    assert bound.limit == limit
    assert bound.rate == pytest.approx(rate)


def test_both_transports_are_measured_at_each_distance_and_at_none() -> None:
    fixed = {
        (each.options["transport"], each.options["latency_ms"])
        for each in LATENCY_CONTENDERS
        if each.options.get("prefetch") == 80
    }

    assert fixed == {(each, ms) for each in ("lean", "aioboto3") for ms in (0, *FAR_MS)}
    assert all(near_of(each) in BY_NAME for each in LATENCY_CONTENDERS)


def test_the_table_says_what_is_allowed_what_was_reached_and_what_the_limit_is() -> None:
    readings = {
        "sqs-credits-lean-0": [near()],
        "sqs-credits-lean-50": [far(855.0)],
        "sqs-credits-aioboto3-50": [far(600.0)],
    }

    lines = {line[0]: line for line in latency_grid(Results(readings=readings)).lines[1:]}

    assert lines["lean, 90 in hand"][6:9] == ("900", "0.95", "credits")
    assert lines["aioboto3, 90 in hand"][6:9] == ("–", "–", "–")


def test_few_messages_say_nothing_about_the_aim() -> None:
    readings = {"sqs-credits-lean-0": [near()], "sqs-credits-lean-50": [far(855.0)]}
    [aim] = aims(readings)

    assert aim.is_met
    assert aim.measured.median == pytest.approx(0.95)
    few = attrs.evolve(readings["sqs-credits-lean-50"][0], messages=100)
    assert aims(readings | {"sqs-credits-lean-50": [few]}) == []


def test_when_a_pump_is_measured_far_away_then_a_bare_call_is_timed_too() -> None:
    pytest.importorskip("aiohttp")
    pytest.importorskip("boto3")

    reading = BY_NAME["sqs-credits-lean-10"].run(150)

    assert reading.messages == 150
    assert reading.figures["call_ms"] >= 10
    assert reading.figures["credit_count"] == 90
    assert reading.calls["deletemessagebatch"] >= 15


def test_when_nobody_says_how_much_to_prefetch_then_the_most_is_counted() -> None:
    pytest.importorskip("aiohttp")
    pytest.importorskip("boto3")

    reading = BY_NAME["sqs-credits-default-10"].run(50)

    assert reading.figures["credit_count"] == 90
