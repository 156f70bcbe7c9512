"""docs/conformance.md says what is so."""

from __future__ import annotations

import re

import pytest

from tests.together import together

from .claims import claims
from .columns import COLUMNS, GATEWAYS, PUMP, SERVER, columns_of, may_be_for
from .gateways import EVERY_GATEWAY
from .page import PAGE, declared, render, written_results
from .recording import ItemResult, Record
from .results import CELL, HELD_BY, Cell, refused_exceptions, said_of, table
from .titles import BUILT, INSTEAD, TITLES

# The claims are read from the source of every test, on a busy machine too.
pytestmark = pytest.mark.timeout(90)

REFUSED = (
    "tests/conformance/test_matrix.py::"
    "test_when_an_operation_is_not_to_be_had_then_the_error_says_what_and_why"
)


def written_rows() -> dict[str, list[str]]:
    """The table of results on the page: a requirement's cells by its number."""
    rows = [line.strip("| ").split(" | ") for line in written_results(PAGE.read_text())]
    return {cells[0]: cells[2:] for cells in rows if cells[0] in TITLES}


def test_what_needs_no_run_is_up_to_date() -> None:
    page = PAGE.read_text()

    is_up_to_date = page == render(written_results(page))

    assert is_up_to_date, "run: python -m tests.conformance.page"


def test_every_requirement_has_a_row_with_a_cell_for_each_gateway() -> None:
    rows = written_rows()

    assert list(rows) == list(TITLES), "run: make conformance"
    with together() as each:
        for number, cells in rows.items():
            with each(number):
                assert len(cells) == len(COLUMNS)
                assert [cell for cell in cells if not CELL.fullmatch(cell)] == []


def test_no_row_says_that_something_passed_of_which_there_is_no_test() -> None:
    found = claims()
    with together() as each:
        for number, cells in written_rows().items():
            for column, cell in zip(COLUMNS, cells, strict=True):
                with each(f"{number}, {column}"):
                    is_claimed = any(may_be_for(test, column) for test in found[number])
                    assert is_claimed or not re.search("passed|emulated", cell)


def test_what_is_said_to_be_refused_or_emulated_is_what_the_gateway_declares() -> None:
    with together() as each:
        for number, cells in written_rows().items():
            for column, said in zip(COLUMNS, cells, strict=True):
                cell = Cell(number, column)
                with each(f"{number}, {column}"):
                    if cell.operation is None or cell.capabilities is None:
                        assert not said.startswith(("raises", "carried", "emulated"))
                    elif said.startswith(("raises", "carried")):
                        assert not cell.operation.is_offered_by(cell.capabilities)
                    elif said.startswith("emulated"):
                        assert cell.operation.field in cell.capabilities.emulated
                    if said.startswith("raises"):
                        assert said.split("`")[1] in refused_exceptions()


def test_every_requirement_that_is_said_to_be_built_is_claimed_by_a_test() -> None:
    assert sorted(BUILT - set(claims())) == []


def test_every_test_that_proves_another_mechanism_is_there_and_claims_its_number() -> None:
    found = claims()

    lost = [test for each in INSTEAD for test in each.tests if test not in found[each.number]]

    assert lost == []


def test_every_requirement_is_listed() -> None:
    numbers = {f"R{number}" for number in (*range(1, 82), 92, 93)}
    numbers |= {f"T{number}" for number in range(1, 15)}

    assert set(TITLES) == numbers
    assert set(HELD_BY) <= numbers


# How outcomes become cells.


def ended(outcome: str, number: str = "R5", column: str = "NATS") -> ItemResult:
    return ItemResult(outcome, [number], [column], [])


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (["passed", "passed", "skipped"], "passed 2"),
        (["passed", "failed"], "**failed 1** of 2"),
        (["skipped"], "left out"),
        ([], "not run"),
    ],
)
def test_when_tests_ended_so_then_the_cell_says_so(outcomes: list[str], said: str) -> None:
    tests = {str(place): ended(outcome) for place, outcome in enumerate(outcomes)}

    assert said_of(Cell("R5", "NATS"), tests, claims()["R5"]) == said


def test_when_a_gateway_makes_it_up_then_what_passed_is_emulated() -> None:
    tests = {"one": ended("passed", "R40", "NATS")}

    assert said_of(Cell("R40", "NATS"), tests, []) == "emulated 1"


def test_when_a_gateway_refuses_and_a_test_held_it_to_that_then_the_error_is_named() -> None:
    proof = f"{REFUSED}[S3, leases-has_sessions]"

    cell = Cell("R40", "S3, leases")

    assert said_of(cell, {proof: ended("passed", "R76")}, []) == "raises `UnsupportedOperation`"
    assert said_of(cell, {proof: ended("skipped", "R76")}, []) == "–"


def test_when_nothing_is_about_the_gateway_then_there_is_a_dash() -> None:
    assert said_of(Cell("R70", "NATS"), {}, ["tests/crypto/test_policy.py::test_it"]) == "–"


def test_when_nothing_was_recorded_then_every_requirement_has_its_row_all_the_same() -> None:
    lines = list(table([Record(name="none", commit="0", python="3")]))

    assert len(lines) == 2 + len(TITLES)
    assert not any("passed" in line.split("|", 3)[3] for line in lines)


@pytest.mark.parametrize(
    ("path", "label", "fixtures", "columns"),
    [
        ("tests/contract/test_nats.py", "TestNats::", ["rig"], ["NATS"]),
        ("tests/contract/test_pump_local.py", "TestPumpLocal::", ["local_aws"], ["SQS"]),
        ("tests/contract/test_s3_localstack.py", "TestLog::", ["aws"], ["S3, log"]),
        ("tests/gateways/s3/test_queues.py", "", [], ["S3, leases", "S3, log"]),
        ("tests/gateways/s3/test_queues.py", "[log]", [], ["S3, log"]),
        ("tests/sqs_server/engine/test_queue.py", "", [], [SERVER]),
        ("tests/redrive/test_sqs.py", "", ["own_rabbitmq"], ["RabbitMQ"]),
        ("tests/watched/test_memory_and_local.py", "TestWatchedOnLocal::", [], ["local"]),
        ("tests/core/test_app.py", "", ["tmp_path"], [PUMP]),
    ],
)
def test_a_test_is_about_the_gateway_of_its_folder_class_or_server(
    path: str, label: str, fixtures: list[str], columns: list[str]
) -> None:
    assert columns_of(path, label, fixtures) == columns


def test_every_gateway_has_its_column() -> None:
    assert tuple(EVERY_GATEWAY) == GATEWAYS
    assert set(GATEWAYS) < set(COLUMNS)
    assert "## Requirements" in declared()


def test_when_a_test_is_set_up_fails_and_is_torn_down_then_it_failed() -> None:
    record = Record(name="one", commit="0", python="3")
    claimed = {"numbers": ["R5"], "columns": ["NATS"], "servers": []}

    for when, outcome in (("setup", "passed"), ("call", "passed"), ("teardown", "failed")):
        report = pytest.TestReport(
            nodeid="a::b",
            location=("a", 1, "b"),
            keywords={},
            outcome=outcome,  # type: ignore[arg-type]
            longrepr=None,
            when=when,  # type: ignore[arg-type]
            user_properties=[("conformance", claimed)],
        )
        record.note(report)

    assert record.tests["a::b"].outcome == "failed"
