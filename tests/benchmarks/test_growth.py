"""How the cost of a message grows: the contender, its table and the aim."""

import pytest

from benchmarks.contender import Contender
from benchmarks.contenders.growth_memory import run
from benchmarks.growth.catalogue import GROWTH_CONTENDERS, SERIES
from benchmarks.growth.tables import growth_grid
from benchmarks.reading import Reading, Span
from benchmarks.rounds import Results
from benchmarks.summary import aims


def costing(cpu_us: float, messages: int = 1000) -> Reading:
    span = Span(wall_s=1.0, cpu_s=cpu_us * messages / 1e6)
    return Reading(messages=messages, spans={"send and pump": span})


def test_at_the_default_each_series_is_what_was_asked_for() -> None:
    counts = [each.messages(50_000) for each in SERIES["messages"]]
    subscriptions = [each.options["subscriptions"] for each in SERIES["subscriptions"]]
    in_flight = [each.options["concurrency"] for each in SERIES["in flight"]]

    assert counts == [10_000, 100_000, 1_000_000]
    assert subscriptions == [1, 10, 100]
    assert in_flight == [1, 64, 512]
    assert len({each.messages(50_000) for each in SERIES["subscriptions"]}) == 1


@pytest.mark.parametrize("contender", GROWTH_CONTENDERS, ids=lambda contender: contender.name)
def test_when_growth_is_measured_then_every_message_was_acked(contender: Contender) -> None:
    """The contender itself looks whether they were."""
    reading = contender.run(700)

    assert reading.messages == 700
    assert reading.wall_s > 0


@pytest.mark.parametrize("in_flight", [1, 64, 512])
def test_when_many_shall_be_in_flight_then_they_are(in_flight: int) -> None:
    reading = run(1500, concurrency=in_flight, is_held=True)

    assert reading.figures["peak_in_flight_count"] == in_flight


def test_each_row_is_compared_with_the_smallest_of_its_series() -> None:
    readings = {
        "growth-messages-10k": [costing(10.0)],
        "growth-messages-1m": [costing(11.0)],
        "growth-in-flight-1": [costing(40.0)],
        "growth-in-flight-512": [costing(20.0)],
    }

    lines = growth_grid(Results(readings=readings)).lines

    assert [line[3:5] for line in lines] == [
        ("10.0", "1.00"),
        ("11.0", "1.10"),
        ("40.0", "1.00"),
        ("20.0", "0.50"),
    ]


@pytest.mark.parametrize(("most_us", "is_met"), [(11.9, True), (12.1, False)])
def test_a_message_among_many_shall_cost_little_more(most_us: float, is_met: bool) -> None:
    readings = {
        "growth-messages-10k": [costing(10.0)],
        "growth-messages-1m": [costing(most_us)],
    }

    [aim] = aims(readings)

    assert aim.measured.median == pytest.approx(most_us / 10)
    assert aim.is_met is is_met
