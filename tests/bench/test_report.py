import json

import pytest

from pump.bench.report import (
    BenchReport,
    Cost,
    EndReason,
    Machine,
    Measured,
    series,
    suggest,
    warnings_of,
)
from pump.bench.scratch import Leftover, removal_hint

from .figures import measured, settings, spread

QUIET = Machine(cores=2, python="3.11.7", load_before=0.5, load_after=1.9)


def test_the_figures_are_what_was_measured_a_second_and_a_message() -> None:
    found = measured(handled=900, rejected=100, cpu_s=0.5, requests={"get": 200, "put": 30})

    assert (found.done, found.throughput, found.send_rate) == (1_000, 100.0, 1_000.0)
    assert (found.cpu_us, found.cpu_share) == (500.0, 0.05)
    assert found.requests_a_thousand == 230.0


def test_requests_that_sent_what_was_not_handled_are_nobodys() -> None:
    requests = {"send": 1_000, "receive": 30, "delete": 10}
    found = measured(
        sent=10_000,
        handled=100,
        requests=requests,
        send_requests={"send": 1_000},
        ended=EndReason.TIME,
    )

    assert found.requests_of_done == pytest.approx({"send": 10, "receive": 30, "delete": 10})
    assert found.requests_a_thousand == pytest.approx(500)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (measured(rate=100.0, wall_s=10.9), True),
        (measured(rate=100.0, wall_s=11.1), False),
        (measured(rate=100.0, wall_s=11.1, run=spread(1.0)), True),
        (measured(rate=10.0, wall_s=104.0), True),
        (measured(rate=100.0, wall_s=10.0, ended=EndReason.TIME), False),
        (measured(rate=100.0, wall_s=10.0, handled=950, ended=EndReason.STOPPED), True),
        (measured(rate=100.0, wall_s=10.0, handled=500, ended=EndReason.STOPPED), False),
        (measured(rate=None), None),
    ],
)
def test_the_pace_was_kept_when_the_last_was_handled_soon_after_it_was_due(
    found: Measured, kept: bool | None
) -> None:
    assert found.kept_pace is kept


def test_when_nothing_was_done_then_there_are_no_figures_of_a_message() -> None:
    found = measured(handled=0, wall_s=0.0, send_s=0.0, requests={"get": 1})

    assert (found.throughput, found.send_rate, found.cpu_share) == (0.0, 0.0, 0.0)
    assert (found.cpu_us, found.requests_a_thousand) == (None, None)


def test_a_series_has_the_rate_of_each_part_of_the_time() -> None:
    assert series(((0.5, 10), (1.5, 20), (4.0, 8)), wall_s=4.0, slots=4) == [10, 20, 0, 8]
    assert series((), wall_s=0.0, slots=4) == []


@pytest.mark.parametrize(
    ("loads", "is_busy"),
    [((2.1, 0.0), True), ((0.0, 2.1), True), ((2.0, 2.0), False), ((None, None), False)],
)
def test_a_machine_is_busy_when_more_wants_to_run_than_it_has_cores(
    loads: tuple[float | None, float | None], is_busy: bool
) -> None:
    machine = Machine(cores=2, python="", load_before=loads[0], load_after=loads[1])

    assert machine.is_busy == is_busy
    assert bool(warnings_of(measured(), machine)) == is_busy


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (measured(ended=EndReason.TIME, handled=10), "the time was over after 10 of 1,000"),
        (
            measured(ended=EndReason.TIME, rate=1.0, requests={"send": 9}),
            "include the sends of all",
        ),
        (measured(ended=EndReason.STOPPED, handled=10), "interrupted after 10 of 1,000"),
        (measured(handled=990, rejected=10, errors={"handler: OSError": 10}), "OSError (10)"),
        (measured(retried=10), "10 deliveries retried"),
    ],
)
def test_what_makes_figures_doubtful_is_said(found: Measured, word: str) -> None:
    [warning] = warnings_of(found, QUIET)

    assert word in warning


def test_a_report_is_json_with_what_follows_from_it() -> None:
    report = BenchReport(
        app="shop:app",
        gateway="sqs://eu-west-1",
        subscription="orders",
        queue="orders-bench-1a2b",
        handler="app",
        body_bytes=12,
        settings=settings(),
        measured=measured(),
        machine=QUIET,
        cost=Cost(dollars_a_million=0.12, is_counted=False, source="a list"),
        is_billed=True,
        suggestions=suggest(measured(), settings()),
        left=(Leftover(queue="orders-bench-1a2b", is_empty=True),),
    )

    read = json.loads(json.dumps(report.to_json()))

    assert read["measured"]["throughput"] == 100.0
    assert read["measured"]["latency"]["p99_s"] == 0.1
    assert len(read["measured"]["series"]) == 60
    assert read["measured"]["ended"] == "all handled"
    assert read["machine"]["is_busy"] is False
    assert read["suggestions"][0]["setting"] == "--rate"
    assert read["left"][0] == {
        "queue": "orders-bench-1a2b",
        "is_removed": False,
        "is_empty": True,
        "why": "",
    }


@pytest.mark.parametrize("gateway", ["sqs", "s3", "amqp", "nats", "sb"])
def test_how_to_remove_a_queue_is_said_with_its_name(gateway: str) -> None:
    assert "orders-bench-1a2b" in removal_hint(gateway, "orders-bench-1a2b", f"{gateway}://x")


def test_of_a_bucket_the_whole_prefix_is_named() -> None:
    hint = removal_hint("s3", "orders-bench-1a2b", "s3://shop/prod/")

    assert hint == "aws s3 rm --recursive s3://shop/prod/queues/orders-bench-1a2b/"


def test_of_a_bucket_that_is_not_known_the_place_is_left_open() -> None:
    hint = removal_hint("s3", "orders-bench-1a2b", "s3://")

    assert hint == "aws s3 rm --recursive s3://…/queues/orders-bench-1a2b/"


def test_of_a_strangers_broker_its_own_tools_are_named() -> None:
    assert removal_hint("kafka", "orders", "kafka://") == "your broker's own tools"
