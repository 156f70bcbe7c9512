"""Figures, ratios, aims and tables from readings that are made up."""

import attrs
import pytest

from benchmarks.__main__ import with_last_run
from benchmarks.reading import Reading, Span
from benchmarks.rounds import Results
from benchmarks.summary import aims, cheaper, compare, faster, growth_mib, row_of
from benchmarks.tables import grids


def reading(
    *, wall_s: float = 1.0, cpu_s: float = 1.0, messages: int = 1000, calls: int = 0
) -> Reading:
    return Reading(
        messages=messages,
        spans={"pump": Span(wall_s=wall_s, cpu_s=cpu_s)},
        calls={"receivemessage": calls} if calls else {},
    )


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


def test_pump_overhead_is_what_the_pump_adds_to_the_ports() -> None:
    readings = {"port-pump": [reading(cpu_s=0.020)], "port": [reading(cpu_s=0.004)]}

    [aim] = aims(readings)

    assert aim.measured.median == pytest.approx(16.0)
    assert aim.is_met


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


def test_the_lean_transport_has_its_aims() -> None:
    names = ("pump-sqs-lean", "sqs-lean", "sqs-aioboto3", "sqs-workers", "sqs-celery")
    readings = {name: [reading(calls=200)] for name in names}

    found = {aim.title: (aim.target, aim.is_upper) for aim in aims(readings)}

    assert found == {
        "Pumphouse SQS, lean, to the lean loop": (0.7, False),
        "The same to raw aioboto3": (2.5, False),
        "The same to the fastest framework": (5.0, False),
        "The same to Celery": (20.0, False),
        "SQS calls, lean": (210.0, True),
        "SQS, lean: processor time": (60.0, True),
    }


def test_when_either_transport_makes_too_many_calls_then_the_aim_is_missed() -> None:
    readings = {
        "pump-sqs": [reading(calls=200)],
        "pump-sqs-boto3": [reading(calls=260)],
    }

    [aim] = aims(readings)

    assert aim.measured.median == pytest.approx(260)
    assert not aim.is_met


def test_a_table_of_sqs_shows_calls_and_processor_time_by_a_thousand_messages() -> None:
    measured = reading(messages=2000, wall_s=0.5, cpu_s=0.4, calls=402)

    [grid, _] = grids(Results(readings={"pump-sqs": [measured]}))

    assert (
        "| Pumphouse SQS, aioboto3 | 2,000 | 4,000 | 201 | 200,000 | 1.00 | 1.00 |  |"
        in grid.to_markdown()
    )


def test_a_table_of_servers_shows_what_clients_and_servers_spent() -> None:
    def life(*, wall_s: float, cpu_s: float) -> Reading:
        plain = reading(messages=1000, wall_s=wall_s, cpu_s=cpu_s)
        return attrs.evolve(plain, figures={"client_cpu_s": 0.02})

    ours, theirs = life(wall_s=0.1, cpu_s=0.1), life(wall_s=1.0, cpu_s=0.9)
    results = Results(readings={"life-pump-local": [ours], "life-localstack": [theirs]})

    [grid, aims_grid] = grids(results)

    assert (
        "| LocalStack | 1,000 | 1,000 | 900 | 0.90 | 20 | 10.00 | 9.00 | in memory |"
        in grid.to_markdown()
    )
    assert "| pump local to LocalStack | ≥ 8 | 10.00 |" in aims_grid.to_markdown()


def test_limits_for_a_million_pending_are_not_about_fewer() -> None:
    figures = {"start_s": 3.0, "few_p50_ms": 1.0, "many_p50_ms": 1.1}
    fewer = Reading(messages=1000, spans={}, rss_mib=(90.0, 80.0), figures=figures)
    million = attrs.evolve(fewer, messages=1_000_000, rss_mib=(1024.0, 900.0))

    assert aims({"pending-pump-local": [fewer]}) == []
    found = [aim.measured.median for aim in aims({"pending-pump-local": [million]})]
    assert found == pytest.approx([1.0, 1.1, 3.0])


def test_growth_is_counted_from_the_first_sample() -> None:
    flat = Reading(messages=10, spans={}, rss_mib=(40.0, 41.5, 41.0))

    growth = growth_mib([flat])

    assert growth is not None
    assert growth.median == pytest.approx(1.5)


def test_a_reading_survives_the_pipe() -> None:
    sent = Reading(
        messages=3,
        spans={"a": Span(wall_s=1.0, cpu_s=0.5)},
        rss_mib=(1.0, 2.0),
        calls={"receivemessage": 2},
        figures={"start_s": 0.5},
    )

    assert Reading.from_json(sent.to_json()) == sent


def test_when_a_library_is_missing_then_the_table_says_what_to_install() -> None:
    results = Results(readings={"pump": [reading()]}, missing={"taskiq": "taskiq (no module)"})

    text = "\n".join(grid.to_markdown() for grid in grids(results))

    assert "| taskiq InMemoryBroker | – | – | – | – | – | needs taskiq |" in text


def test_when_the_readme_is_written_then_only_the_tables_change() -> None:
    readme = "before\n<!-- last run -->\nold\n<!-- end of last run -->\nafter\n"

    once = with_last_run(readme, ["| new |"])

    assert "| new |" in once
    assert "old" not in once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert with_last_run(once, ["| new |"]) == once
