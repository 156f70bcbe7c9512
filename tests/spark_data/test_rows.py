"""A row as a message, or the reason why it is none (R78)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from pump.errors import ConfigurationError
from pump.message import JSON, Message
from pump.spark.data.rows import RowIds, Spotted, check_columns, messages_of, record_batch

IDS = RowIds(job="job", partition=3)


def made(batch: Any, *, deduplicates: bool = False, first_row: int = 0) -> list[Message]:
    return messages_of(batch, IDS, first_row=first_row, now_s=5.0, deduplicates=deduplicates)


def test_when_a_row_has_a_body_only_then_the_rest_is_given() -> None:
    """R78: the id is the row's own, and the time is now."""
    [message] = made(pa.record_batch({"body": ["ü"]}), first_row=7)

    assert message == Message(
        id=IDS.of(7), body="ü".encode(), content_type=JSON, created_at_s=5.0, type=""
    )


def test_when_a_message_became_a_row_then_the_row_becomes_the_message() -> None:
    """R78: what was read can be written again."""
    message = Message(
        id="i", body=b"\xff", type="t", content_type="c", correlation_id="co", reply_to="r",
        group="g", deduplication_id="d", created_at_s=1.25, headers={"a": "b"},
    )  # fmt: skip
    bare = Message(id="bare", body=b"")
    batch = record_batch([Spotted(message=each, queue="q", attempt=2) for each in (message, bare)])

    assert made(batch) == [message, bare]


def test_when_the_gateway_de_duplicates_then_rows_without_a_key_have_one_of_their_own() -> None:
    """R78: two rows with one id are two messages; one row written twice is one."""
    batch = pa.record_batch({"body": ["x", "x"], "id": ["same", "same"]})

    first, second = made(batch, deduplicates=True)

    assert (first.deduplication_id, second.deduplication_id) == (IDS.of(0), IDS.of(1))
    assert made(batch, deduplicates=True) == [first, second]


def test_when_ids_are_made_then_job_partition_and_row_tell_them_apart() -> None:
    """R78: no two rows of any two writes share an id."""
    sources = [RowIds(job=job, partition=at) for job in ("a", "a\0001") for at in (1, 11, 111)]

    assert len({ids.of(row) for ids in sources for row in (0, 1, 11)}) == 18


@pytest.mark.parametrize("tz", [None, "UTC", "+02:00"])
def test_when_a_time_has_no_zone_then_it_is_utc(tz: str | None) -> None:
    """R78: the same instant, however Spark hands it over."""
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    times = pa.array([int(instant.timestamp() * 1e6), None], pa.timestamp("us", tz=tz))

    messages = made(pa.record_batch({"body": ["x", "y"], "created_at": times}))

    assert [each.created_at_s for each in messages] == [instant.timestamp(), None]


def test_when_a_body_is_null_then_the_error_names_row_and_column() -> None:
    """R78: the user finds the row."""
    with pytest.raises(ConfigurationError, match=r"column 'body'='row 102 of partition 3'"):
        made(pa.record_batch({"body": ["x", "y", None]}), first_row=100)


def test_when_a_header_is_null_then_the_error_names_it() -> None:
    """R78: a header is text, and null is none."""
    headers = pa.array([[("tenant", None)]], pa.map_(pa.string(), pa.string()))

    with pytest.raises(ConfigurationError, match=r"'headers'='row 0 of .*'tenant' is null"):
        made(pa.record_batch({"body": ["x"], "headers": headers}))


@pytest.mark.parametrize(
    ("kinds", "complaint"),
    [
        ({"type": "string"}, "column 'body'=None: every row needs one; a row may have id, type,"),
        ({"body": "string", "Body": "string"}, "column 'Body'='string': no such column"),
        ({"body": "int"}, "column 'body'='int': cast it to binary or string"),
        ({"body": "string", "created_at": "date"}, "cast it to timestamp or timestamp_ntz"),
        ({"body": "string", "headers": "map<string,int>"}, r"cast it to map<string,string>"),
    ],
)
def test_when_columns_are_wrong_then_the_error_names_them(
    kinds: dict[str, str], complaint: str
) -> None:
    """R78: a clear error before the first row is sent."""
    with pytest.raises(ConfigurationError) as raised:
        check_columns(kinds)

    assert complaint in str(raised.value)


def test_when_columns_are_those_of_a_read_then_they_fit() -> None:
    """R78: what a reader says beyond the message is taken and not sent."""
    check_columns({"body": "binary", "attempt": "int", "queue": "string", "id": "string"})
