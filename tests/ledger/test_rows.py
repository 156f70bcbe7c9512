"""Events as rows (R23, R24): pure, and for whatever a foreign producer has put into a message."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from pump import RejectionReason
from pump.events import (
    BestEffortOrderEvent,
    Event,
    LeaseLostEvent,
    PumpStateEvent,
    RedrivenEvent,
    Status,
)
from pump.stores.ledger.parquet import write_rows
from pump.stores.ledger.parquet_ledger import LedgerJournal, Range
from pump.stores.ledger.rows import MAX_DETAIL, Row, RowMaker, encodable
from pump.stores.ledger.sqlite_ledger import LedgerFile

from .support import a_row, an_outcome, parquet_rows, sqlite_rows

TIME_S = 1_750_000_000.123456
make = RowMaker(gateway="sqs", pump="host:7:abc")


def test_when_a_message_was_processed_then_the_row_says_everything_known_of_it() -> None:
    """R24: id, status, attempts."""
    event = an_outcome(attempt=3, created_at_s=TIME_S - 2)

    [row] = make([(event, TIME_S)])

    assert row == a_row(
        time=1_750_000_000_123_456,
        message_id="m-0",
        attempts=3,
        age_s=pytest.approx(2.0),
        gateway="sqs",
        pump="host:7:abc",
    )


@pytest.mark.parametrize(
    ("status", "destination", "expected"),
    [
        (Status.PROCESSED, None, "processed"),
        (Status.RETRYING, None, "retrying"),
        (Status.DEAD_LETTERED, "dead", "dead-lettered"),
        (Status.DEAD_LETTERED, None, "discarded"),
    ],
)
def test_when_an_outcome_is_recorded_then_the_status_tells_also_what_was_discarded(
    status: Status, destination: str | None, expected: str
) -> None:
    """R24."""
    reason = RejectionReason.DELIVERY_ERROR if status is Status.DEAD_LETTERED else None
    event = an_outcome(status=status, destination=destination, reason=reason, detail="no")

    [row] = make([(event, TIME_S)])

    assert (row.status, row.destination, row.detail) == (expected, destination, "no")
    assert row.reason == ("DeliveryError" if reason else None)


def test_when_a_dead_letter_was_redriven_then_its_row_says_from_where_to_where() -> None:
    """R78."""
    event = RedrivenEvent(
        message_id="m",
        queue="dead",
        destination="q",
        attempt=4,
        message_type="Pay",
        reason="Timeout",
        detail="no answer",
        created_at_s=TIME_S - 2,
    )

    [row] = make([(event, TIME_S)])

    assert (row.status, row.queue, row.destination) == ("redriven", "dead", "q")
    assert (row.message_id, row.type, row.attempts) == ("m", "Pay", 4)
    assert (row.reason, row.detail, row.subscription) == ("Timeout", "no answer", "redrive")
    assert row.age_s == pytest.approx(2)
    assert row.run_s is None


def test_when_a_lease_was_lost_then_there_is_a_row_and_its_status_says_so() -> None:
    event = LeaseLostEvent(message_id="m", queue="q", subscription="s", attempt=2)

    [row] = make([(event, TIME_S)])

    assert (row.status, row.message_id, row.queue, row.attempts) == ("lease-lost", "m", "q", 2)
    assert (row.run_s, row.age_s, row.type) == (None, None, "")


def test_when_an_event_is_no_outcome_of_a_message_then_it_is_left_out() -> None:
    events: list[Event] = [
        BestEffortOrderEvent(queue="q", subscription="s", detail=""),
        PumpStateEvent(subscription="s", state="running"),
    ]

    assert make([(event, TIME_S) for event in events]) == []


def test_when_details_are_not_wanted_then_they_are_left_out() -> None:
    without = RowMaker(gateway="sqs", pump="p", has_detail=False)

    [row] = without([(an_outcome(detail="secret"), TIME_S)])

    assert row.detail is None


def test_when_a_detail_is_long_then_its_beginning_is_kept() -> None:
    [row] = make([(an_outcome(detail="x" * 1_000_000), TIME_S)])

    assert row.detail == "x" * MAX_DETAIL


@pytest.mark.parametrize("created_at_s", [math.inf, -math.inf, math.nan])
def test_when_the_sender_dated_it_at_no_time_then_it_has_no_age(created_at_s: float) -> None:
    [row] = make([(an_outcome(created_at_s=created_at_s, run_s=math.nan), TIME_S)])

    assert (row.age_s, row.run_s) == (None, None)


def test_when_an_attempt_count_is_absurd_then_it_still_fits_its_column() -> None:
    [row] = make([(an_outcome(attempt=10**30), TIME_S)])

    assert row.attempts == 2**31 - 1


STRANGE = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
ROWS = st.builds(
    a_row,
    message_id=STRANGE,
    type=STRANGE,
    queue=STRANGE,
    detail=st.none() | STRANGE,
    reason=st.none() | STRANGE,
    run_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    age_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    attempts=st.integers(0, 2**31 - 1),
    time=st.integers(0, 4_000_000_000_000_000),
)


@settings(max_examples=60)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_when_strange_texts_are_journalled_and_rolled_then_they_come_back(rows: list[Row]) -> None:
    """NUL, half surrogate pairs, whatever a header may hold."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with closing(LedgerJournal.create(folder)) as journal:
            journal.append(rows)
            [back] = journal.rows(Range(1, 1))
        (folder / "day=2025-06-15").mkdir()
        write_rows([back], folder / "day=2025-06-15" / "a.parquet")

        assert back == encodable(rows)
        assert parquet_rows(folder) == encodable(rows)


@settings(max_examples=60)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_when_strange_texts_go_into_sqlite_then_they_come_back(rows: list[Row]) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "ledger.db"
        store = LedgerFile(path, None)
        store.append(rows)
        store.close(0.0)

        assert sorted(sqlite_rows(path), key=repr) == sorted(encodable(rows), key=repr)


def test_when_half_a_surrogate_pair_is_written_then_it_is_seen_as_an_escape(tmp_path: Path) -> None:
    store = LedgerFile(tmp_path / "ledger.db", None)
    store.append([a_row(detail="a\udc80b\x00c")])
    store.close(0.0)

    [row] = sqlite_rows(tmp_path / "ledger.db")
    assert row.detail == "a\\udc80b\x00c"


def test_when_rows_are_unusual_in_size_then_they_are_kept(tmp_path: Path) -> None:
    row = a_row(detail="\N{SNOWMAN}" * 1_000_000, message_id="")
    with closing(LedgerJournal.create(tmp_path)) as journal:
        journal.append([row] * 3)

        [back] = journal.rows(Range(1, 1))

    assert back == [row] * 3
    assert sqlite3.sqlite_version_info > (3, 22)
