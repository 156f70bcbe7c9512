"""A message as a row, whatever it holds (R78)."""

from __future__ import annotations

import pytest

from pump.message import Message
from pump.spark.data.rows import ARROW, Spotted, batches, record_batch


def row_of(message: Message, attempt: int | None = 1) -> dict[str, object]:
    batch = record_batch([Spotted(message=message, queue="orders", attempt=attempt)])
    [row] = batch.to_pylist()
    return dict(row)


@pytest.mark.parametrize(
    "created_at_s", [float("nan"), float("inf"), -float("inf"), 1e18, -1e18, 253_402_300_800.0]
)
def test_when_no_calendar_has_the_time_then_it_is_null(created_at_s: float) -> None:
    """R78: a message with an impossible time is a row all the same."""
    assert row_of(Message(body=b"x", created_at_s=created_at_s))["created_at"] is None


def test_when_text_is_no_utf_8_then_it_is_escaped() -> None:
    """R78: half a surrogate pair, in any field, does not cost the message its row."""
    half = "a\ud800"
    message = Message(
        body=b"x", id=half, type=half, content_type=half, correlation_id=half, group=half,
        reply_to=half, deduplication_id=half, headers={half: half},
    )  # fmt: skip

    row = row_of(message)

    assert {row[name] for name in ("id", "type", "content_type", "group")} == {"a\\ud800"}
    assert row["headers"] == [("a\\ud800", "a\\ud800")]


def test_when_header_names_become_equal_then_the_map_has_one_of_them() -> None:
    """R78: Spark refuses a map with a key twice, and one odd message must not stop a stream."""
    row = row_of(Message(body=b"x", headers={"\ud800": "1", "\\ud800": "2"}))

    assert row["headers"] == [("\\ud800", "2")]


def test_when_the_attempt_is_beyond_all_counting_then_it_is_the_largest() -> None:
    """R78: a broker's count is text in somebody's header."""
    assert row_of(Message(body=b"x"), 10**12)["attempt"] == 2**31 - 1


def test_when_bodies_are_huge_then_batches_are_small() -> None:
    """R78: one batch never nears what Arrow can address; rows stay in order."""
    messages = [Message(body=bytes(6_000_000), id=str(at)) for at in range(7)]
    spotted = [Spotted(message=each, queue="q", attempt=None) for each in messages]

    made = list(batches(spotted))

    assert [batch.num_rows for batch in made] == [2, 2, 2, 1]
    assert [id_ for batch in made for id_ in batch.column("id").to_pylist()] == list("0123456")


@pytest.mark.spark
def test_when_spark_is_asked_then_it_expects_these_very_columns() -> None:
    """R78: Spark compares the Arrow schema of what is read with its own, and refuses another."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from pump.spark.data.source import SCHEMA

    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(ARROW)
