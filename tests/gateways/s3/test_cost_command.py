"""`pump s3 cost`, as it is called."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from pump.cli.root import cli

Pump = Callable[..., Result]


@pytest.fixture
def pump() -> Pump:
    runner = CliRunner()

    def call(*arguments: str) -> Result:
        return runner.invoke(cli, arguments, prog_name="pump")

    return call


def test_when_nothing_is_asked_for_then_all_designs_are_compared(pump: Pump) -> None:
    """Issue 7: both layouts beside the naive design and SQS."""
    result = pump("s3", "cost")

    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split()[-5:] == ["a", "message", "USD", "a", "million"]
    titles = ("layout leases", "layout log", "naive design", "SQS standard")
    assert all(line.startswith(title) for title, line in zip(titles, lines, strict=False))
    assert "1,000,000 messages" in lines[-1]
    assert "us-east-1" in lines[-1]


def test_when_a_layout_is_named_then_its_parts_are_shown(pump: Pump) -> None:
    """Issue 7: where the requests go."""
    result = pump("s3", "cost", "--layout", "leases", "--batch", "100", "--handler", "40s")

    lines = {line.split("  ")[0]: line for line in result.stdout.splitlines()}
    assert {"send", "find", "read", "claim", "renew", "settle", "clean up", "all"} <= set(lines)
    # Two writes a hundred messages, a claim, two renewals and an ack each.
    assert "4,020,000" in lines["all"]


def test_when_json_is_asked_for_then_every_design_and_what_was_assumed_is_in_it(
    pump: Pump,
) -> None:
    """Issue 7: for whoever computes on."""
    result = pump(
        *("s3", "cost", "--json", "--messages", "1000", "--idle", "8h", "--poll", "2s"),
        *("--put-price", "0.01"),
    )

    found = json.loads(result.stdout)
    assert found["workload"]["idle_s"] == 8 * 3600
    assert found["prices"]["puts_1000"] == 0.01
    assert found["log"]["parts"]["idle"]["gets"] == 8 * 3600 / 2
    assert found["naive"]["requests"]["puts"] == 2000
    for design in ("leases", "log", "naive", "sqs"):
        assert found[design]["dollars_a_million"] == pytest.approx(found[design]["dollars"] * 1000)


def test_when_put_prices_are_doubled_then_a_design_of_puts_costs_twice_as_much(pump: Pump) -> None:
    """Issue 7: prices are the caller's to set."""

    def dollars(*prices: str) -> float:
        found = json.loads(pump("s3", "cost", "--json", "--get-price", "0", *prices).stdout)
        cost: float = found["leases"]["dollars"]
        return cost

    twice = dollars("--put-price", "0.01", "--list-price", "0.01")
    assert twice == pytest.approx(2 * dollars("--put-price", "0.005"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--layout", "tape"), "'tape' is not one of"),
        (("--handler", "soon"), "'soon' is not a duration"),
        (("--messages", "0"), "0 is not in the range"),
        (("--rate", "0"), "0.0 is not in the range"),
    ],
)
def test_when_an_option_is_wrong_then_it_is_a_usage_error(
    pump: Pump, arguments: tuple[str, ...], said: str
) -> None:
    """Issue 7: what cannot be estimated is said before anything is."""
    result = pump("s3", "cost", *arguments)

    assert result.exit_code == 2
    assert said in result.output
    assert "try: pump s3 cost --help" in result.output


def test_when_there_are_more_processes_than_consumers_then_the_remedy_is_said(pump: Pump) -> None:
    """Issue 7: numbers that fit one by one and not together."""
    result = pump("s3", "cost", "--processes", "11")

    assert result.exit_code == 3
    assert "use at most 10" in result.output


def test_the_help_teaches_by_examples_and_says_what_is_estimated(pump: Pump) -> None:
    """Issue 7: the command explains itself."""
    result = pump("s3", "cost", "--help")

    assert "Examples:\n    pump s3 cost\n" in result.stdout
    assert "What is estimated, and what is not:" in result.stdout
    assert "Examples:\n    pump s3 cost" in pump("s3", "--help").stdout
