"""Figures, ratios and aims, from readings that are made up."""

from __future__ import annotations

import attrs
import pytest

from benchmarks.aims import aims, bound_of, cheaper, compare, faster, row_of, share_of_bound
from benchmarks.reading import Reading, Span

pytestmark = pytest.mark.slow
FAR_FIGURES = {
    "call_ms": 50.0,
    "credit_count": 90.0,
    "batch_count": 10.0,
    "poller_count": 8.0,
    "delete_call_count": 8.0,
}


def reading(
    *, wall_s: float = 1.0, cpu_s: float = 1.0, messages: int = 1000, calls: int = 0
) -> Reading:
    return Reading(
        messages=messages,
        spans={"pump": Span(wall_s=wall_s, cpu_s=cpu_s)},
        calls={"receivemessage": calls} if calls else {},
    )


def far(rate: float, **figures: float) -> Reading:
    span = Span(wall_s=5_000 / rate, cpu_s=0.0)
    return Reading(messages=5_000, spans={"consume": span}, figures=FAR_FIGURES | figures)


def near(rate: float = 10_000.0, cpu_us: float = 0.0) -> Reading:
    span = Span(wall_s=1000 / rate, cpu_s=cpu_us / 1000)
    return Reading(messages=1000, spans={"consume": span})


def test_when_there_are_several_rounds_then_a_row_shows_the_median_and_the_spread() -> None:
    rounds = [reading(wall_s=1.0), reading(wall_s=2.0), reading(wall_s=4.0)]

    row = row_of("pump", rounds)

    assert (row.rate.median, row.rate.low, row.rate.high) == (500, 250, 1000)


def test_ratios_are_taken_within_a_round() -> None:
    # given a machine that was ten times slower in the second round
    ours = [reading(wall_s=1.0, cpu_s=1.0), reading(wall_s=10.0, cpu_s=10.0)]
    theirs = [reading(wall_s=3.0, cpu_s=2.0), reading(wall_s=30.0, cpu_s=20.0)]
    readings = {"pump": ours, "taskiq": theirs}

    # when
    speed = compare(readings, "pump", "taskiq", faster)
    cost = compare(readings, "pump", "taskiq", cheaper)

    # then
    assert speed is not None
    assert cost is not None
    assert (speed.low, speed.high) == pytest.approx((3.0, 3.0))
    assert (cost.low, cost.high) == pytest.approx((2.0, 2.0))


def test_when_message_counts_differ_then_rates_are_compared() -> None:
    readings = {"pump": [reading(messages=1000)], "huey": [reading(messages=50)]}

    speed = compare(readings, "pump", "huey", faster)

    assert speed is not None
    assert speed.median == pytest.approx(20.0)


def test_when_one_side_was_not_measured_then_there_is_no_ratio_and_no_aim() -> None:
    readings = {"pump": [reading()]}

    assert compare(readings, "pump", "taskiq", faster) is None
    assert aims(readings) == []


def test_an_aim_that_is_missed_says_so() -> None:
    [aim] = aims({"pump": [reading(wall_s=1.0)], "dramatiq": [reading(wall_s=2.9)]})

    assert not aim.is_met


def test_the_fastest_framework_is_chosen_anew_in_each_round() -> None:
    readings = {
        "pump-sqs": [reading(wall_s=1.0), reading(wall_s=1.0)],
        "sqs-workers": [reading(wall_s=2.0), reading(wall_s=4.0)],
        "sqs-taskiq": [reading(wall_s=3.0), reading(wall_s=3.0)],
    }

    [aim, _] = aims(readings)

    assert (aim.measured.low, aim.measured.high) == pytest.approx((2.0, 3.0))


def test_when_either_transport_makes_too_many_calls_then_the_aim_is_missed() -> None:
    readings = {"pump-sqs": [reading(calls=200)], "pump-sqs-boto3": [reading(calls=260)]}

    [aim] = aims(readings)

    assert aim.measured.median == pytest.approx(260)
    assert not aim.is_met


@pytest.mark.parametrize(
    ("ours", "theirs", "measured"),
    [("port-pump", "port", 16_000.0), ("growth-messages-1m", "growth-messages-10k", 5.0)],
)
def test_what_the_pump_adds_and_what_grows_is_counted_in_processor_time(
    ours: str, theirs: str, measured: float
) -> None:
    # 20,000 and 4,000 µs of processor time a message
    [aim] = aims({ours: [reading(cpu_s=20.0)], theirs: [reading(cpu_s=4.0)]})

    assert aim.measured.median == pytest.approx(measured)
    assert aim.is_upper


def test_the_cost_of_hooks_compares_the_cheapest_rounds() -> None:
    readings = {
        "watched-bare": [reading(cpu_s=1.0), reading(cpu_s=3.0)],
        "watched-off": [reading(cpu_s=2.0), reading(cpu_s=1.1)],
    }

    [aim] = aims(readings)

    assert aim.measured.median == pytest.approx(1.1)


def test_limits_for_a_million_pending_are_not_about_fewer() -> None:
    figures = {"start_s": 3.0, "few_p50_ms": 1.0, "many_p50_ms": 1.1}
    fewer = Reading(messages=1000, spans={}, rss_mib=(90.0, 80.0), figures=figures)
    million = attrs.evolve(fewer, messages=1_000_000, rss_mib=(1024.0, 900.0))

    assert aims({"pending-pump-local": [fewer]}) == []
    found = [aim.measured.median for aim in aims({"pending-pump-local": [million]})]
    assert found == pytest.approx([1.0, 1.1, 3.0])


def test_memory_growth_is_counted_from_the_first_sample() -> None:
    [aim] = aims({"flat": [Reading(messages=10, spans={}, rss_mib=(40.0, 41.5, 41.0))]})

    assert aim.measured.median == pytest.approx(1.5)


# What credits allow a pump far from SQS.


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


def test_few_messages_say_nothing_about_what_credits_allow() -> None:
    readings = {"sqs-credits-lean-0": [near()], "sqs-credits-lean-50": [far(855.0)]}
    [aim] = aims(readings)

    assert aim.is_met
    assert aim.measured.median == pytest.approx(0.95)
    few = attrs.evolve(readings["sqs-credits-lean-50"][0], messages=100)
    assert aims(readings | {"sqs-credits-lean-50": [few]}) == []
