"""The tables of a report, against numbers that are counted here by other means."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pump.report.duckdb_engine import duckdb_engine
from pump.report.job import Report, ReportOptions, run_report
from pump.report.source import MAX_BUCKETS, ReportScope, bucket_length_us
from pump.report.tables import BY_NAME, TABLES
from pump.stores.ledger.rows import Row
from tests.ledger.support import a_row

from .generated import HOUR_US, REPEATED_DELIVERIES, START_US, ordinary, repeated, write_ledger

FAILED = {"retrying", "dead-lettered", "discarded", "lease-lost"}


def table(made: Report, name: str) -> list[dict[str, Any]]:
    """The rows of a table, as it was written."""
    rows: list[dict[str, Any]] = pq.read_table(made.page.parent / f"{name}.parquet").to_pylist()
    return rows


def row_of(made: Report, name: str, **key: object) -> dict[str, Any]:
    [found] = [row for row in table(made, name) if key.items() <= row.items()]
    return found


def report_on(tmp_path: Path, rows: list[Row], **scope: Any) -> Report:
    ledger = write_ledger(tmp_path / "ledger", rows)
    options = ReportOptions(ledger=ledger, out=tmp_path / "out", scope=ReportScope(**scope))
    return run_report(options, duckdb_engine)


def test_when_rows_repeat_then_every_delivery_counts_once(made: Report) -> None:
    """R78: rows of the same message, attempt, subscription and queue are one outcome."""
    expected = len(ordinary()) + REPEATED_DELIVERIES

    totals = made.totals

    assert totals["rows"] == len(ordinary()) + len(repeated())
    assert (totals["deliveries"], totals["redriven"]) == (expected, 1)
    assert totals["duplicates"] == len(repeated()) - REPEATED_DELIVERIES - 1 == 2


def test_when_a_delivery_was_told_of_twice_then_the_latest_wins(tmp_path: Path) -> None:
    """R78: the outcome that was known last is the outcome."""
    rows = [a_row(message_id="m"), a_row(message_id="m", status="lease-lost", time=START_US + 9)]

    made = report_on(tmp_path, rows)

    assert (made.totals["processed"], made.totals["lease_lost"]) == (0, 1)


def test_when_outcomes_are_counted_then_the_tables_say_what_the_rows_say(made: Report) -> None:
    """R78: volumes by type and status."""
    rows = [row for row in ordinary() if row.type == "Pay"]
    statuses = Counter(row.status for row in rows)

    pay = row_of(made, "types", type="Pay")

    assert pay["deliveries"] == len(rows)
    assert pay["failed"] == sum(statuses[each] for each in FAILED)
    assert [pay["processed"], pay["retrying"]] == [statuses["processed"], statuses["retrying"]]
    assert pay["failure_rate"] == pytest.approx(pay["failed"] / pay["deliveries"])
    assert pay["first_seen"].timestamp() == pytest.approx(min(row.time for row in rows) / 1e6)


@pytest.mark.parametrize("name", ["volumes", "volumes_by_type", "volumes_by_queue"])
def test_when_slots_are_added_up_then_nothing_is_missing(made: Report, name: str) -> None:
    """R78: over time, by type and by queue."""
    rows = table(made, name)

    assert sum(row["deliveries"] for row in rows) == made.totals["deliveries"]
    assert len({row["start"] for row in rows}) <= MAX_BUCKETS


def test_when_messages_ended_then_their_last_outcome_counts(made: Report) -> None:
    """R78: a message's final status."""
    last = {row.message_id: row for row in ordinary()}
    types = {row.message_id: row.type for row in ordinary() if row.type}
    ends = Counter(row.status for row in last.values() if types.get(row.message_id) == "Zahlung ü")

    messages = row_of(made, "messages", type="Zahlung ü")

    assert messages["messages"] == ends.total()
    assert [messages["processed"], messages["dead_lettered"]] == [
        ends["processed"],
        ends["dead-lettered"],
    ]
    assert made.totals["messages"] == 2_000 + 4


def test_when_times_are_measured_then_percentiles_are_those_of_the_sorted_rows(
    tmp_path: Path,
) -> None:
    """R78: latency percentiles, exact to three digits."""
    times_s = [number / 1000 for number in range(1, 1001)]
    rows = [a_row(message_id=f"m-{n}", run_s=each) for n, each in enumerate(times_s)]
    rows.append(a_row(message_id="none", run_s=None, age_s=-2.5))

    made = report_on(tmp_path, rows)

    run = row_of(made, "latency", metric="run_s", type="PlaceOrder")
    assert [run["count"], run["p50_s"], run["p90_s"], run["p99_s"]] == [1000, 0.5, 0.9, 0.99]
    assert (run["max_s"], run["mean_s"]) == (1.0, pytest.approx(0.5005))
    assert {**run, "type": "(all types)"} == row_of(
        made, "latency", metric="run_s", type="(all types)"
    )
    assert row_of(made, "latency", metric="age_s", type="PlaceOrder")["p50_s"] == 1.0


@pytest.mark.parametrize(
    ("run_s", "shown_s"),
    [
        (0.0, 0.0),
        (1.5e-6, 2e-6),
        (123.456, 123.0),
        (0.0999951, 0.1),
        (1e300, 1e9),
        (float("inf"), 1e9),
        (float("nan"), None),
    ],
)
def test_when_a_time_is_strange_then_the_report_is_made_all_the_same(
    tmp_path: Path, run_s: float, shown_s: float | None
) -> None:
    """R78: three digits are kept, and no number is too large or too small."""
    made = report_on(tmp_path, [a_row(run_s=run_s)])

    rows = [row for row in table(made, "latency") if row["metric"] == "run_s"]

    assert [row["p50_s"] for row in rows] == (
        [] if shown_s is None else [pytest.approx(shown_s)] * 2
    )


def test_when_failures_are_alike_then_they_are_one_cluster(made: Report) -> None:
    """R78: clusters of like failures, by normalised fingerprints."""
    failed = [row for row in ordinary() if row.detail]
    timeouts = [row for row in failed if row.error_type == "TimeoutError"]

    cluster = row_of(made, "clusters", pattern="TimeoutError: no answer from <url> within # s")

    assert cluster["count"] == len(timeouts)
    assert cluster["messages"] == len({row.message_id for row in timeouts})
    assert cluster["share"] == pytest.approx(
        len(timeouts) / sum(row["count"] for row in table(made, "clusters"))
    )
    assert cluster["error_types"] == "TimeoutError"
    newest = max(timeouts, key=lambda row: row.time)
    assert (cluster["example"], cluster["example_message_id"]) == (
        newest.detail,
        newest.message_id,
    )
    assert made.totals["clusters"] == 5


def test_when_a_message_was_rejected_again_after_a_redrive_then_it_is_poison(
    made: Report,
) -> None:
    """R78: poison messages, also those that lived twice."""
    found = {row["message_id"]: row for row in table(made, "poison")}

    assert (found["twice"]["dead_lettered"], found["twice"]["failures"]) == (2, 6)
    assert (found["again"]["dead_lettered"], found["again"]["redriven"]) == (2, 1)
    assert found["again"]["final_status"] == "dead-lettered"
    assert found["again"]["detail"] == "ValueError: poisoned 1"


def test_when_attempts_are_many_then_they_are_counted_together(tmp_path: Path) -> None:
    """R78: the distribution of attempts is bounded."""
    rows = [a_row(message_id=f"m-{n}", attempts=n) for n in (1, 2, 19, 20, 21, 2**31 - 1)]

    made = report_on(tmp_path, rows)

    counts = {row["attempts"]: row["deliveries"] for row in table(made, "attempts")}
    assert counts == {1: 1, 2: 1, 19: 1, 20: 3}


def test_when_there_are_very_many_types_then_the_rare_ones_share_a_line(tmp_path: Path) -> None:
    """R78: whoever sends can name a type as he likes; the report stays readable."""
    rows = [a_row(message_id=f"m-{n}", type=f"T{n}") for n in range(300)]

    made = report_on(tmp_path, rows)

    assert row_of(made, "types", type="(other types)")["deliveries"] == 100
    assert (made.totals["types"], made.totals["deliveries"]) == (300, 300)


def test_when_each_failure_names_another_type_then_a_cluster_does_not_keep_them_all(
    tmp_path: Path,
) -> None:
    """R78: messages of unknown types fail alike, and there may be millions of these names."""
    failed = {"status": "dead-lettered", "reason": "Unacceptable", "detail": "unknown type"}
    rows = [a_row(message_id=f"m-{n}", type=f"T{n:03}", **failed) for n in range(300)]

    made = report_on(tmp_path, rows)

    [cluster] = table(made, "clusters")
    # As many names as a report knows, and one for all others.
    assert cluster["types"] == "(other types), T000, T001, T002, T003, and 196 more"
    assert (cluster["count"], cluster["messages"]) == (300, 300)


def test_when_a_scope_is_given_then_only_its_rows_count(tmp_path: Path) -> None:
    """R78: from when, until when, of which types; a quote in a type is a quote."""
    odd = "it's \\ 'quoted'"
    rows = [a_row(message_id=f"m-{n}", time=START_US + n * HOUR_US, type=odd) for n in range(10)]
    rows.append(a_row(message_id="other", time=START_US + 5 * HOUR_US))

    made = report_on(
        tmp_path,
        rows,
        since_us=START_US + 2 * HOUR_US,
        until_us=START_US + 6 * HOUR_US,
        types=(odd,),
    )

    assert made.totals["rows"] == 4


@pytest.mark.parametrize("span_us", [0, 1, 10**6, 10**9, 7 * 86_400 * 10**6, 10**15, 2**62])
def test_when_time_is_put_into_slots_then_there_are_never_too_many(span_us: int) -> None:
    """R78: charts are bounded, whatever the span."""
    length_us = bucket_length_us(123, 123 + span_us)

    assert (123 + span_us) // length_us - 123 // length_us + 1 <= MAX_BUCKETS


def test_when_tables_are_written_then_their_columns_are_the_declared_ones(made: Report) -> None:
    """R78: each table is Parquet, with the columns that the documentation names."""
    for declared in TABLES:
        found = pq.read_schema(made.page.parent / f"{declared.name}.parquet")
        assert found.names == [column.name for column in declared.columns]
    assert all(earlier != later for earlier, later in pairwise(sorted(BY_NAME)))
