"""Queues as DataFrames and as streams, on Spark, from SQS by `pump local` (R78)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from pump.message import Message
from tests.brokers.aws_account import AwsAccount

from .queues import Queues, queues_for

pytestmark = pytest.mark.spark

ODD = [
    Message(id="plain", body=b"{}", type="Order", created_at_s=1_700_000_000.5),
    Message(
        id="whole",
        body=b"\x00\xff",
        content_type="application/octet-stream",
        correlation_id="c",
        reply_to="r",
        group="g",
        deduplication_id="d",
        headers={"tenant": "blue", "empty": ""},
    ),
    Message(id="half", body=b"", headers={"half": "\ud800"}),
    Message(id="late", body=b"late", created_at_s=1e18),
    Message(id="large", body=b"x" * 300_000),
]


@pytest.fixture
def queues(spark: Any, local_aws: AwsAccount) -> Queues:
    return queues_for(spark, local_aws)


def reader(source: Any, queues: Queues, queue: str) -> Any:
    return source.format("pump").option("gateway", queues.url).option("queue", queue)


def test_when_a_queue_is_read_then_every_message_is_a_row_and_stays(
    spark: Any, queues: Queues
) -> None:
    """R78: a snapshot has all messages, the odd ones too, and takes none; the plan does not show
    the way to the broker.
    """
    queue = queues.make()
    queues.send(queue, ODD)

    frame = reader(spark.read, queues, queue).load()
    rows = {row["id"]: row for row in frame.collect()}

    assert rows.keys() == {message.id for message in ODD}
    assert {id_: bytes(row["body"]) for id_, row in rows.items()} == {m.id: m.body for m in ODD}
    seen_at = rows["plain"]["created_at"].astimezone(UTC)
    assert seen_at == datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)
    assert rows["whole"].asDict() == {
        "id": "whole",
        "type": "",
        "body": bytearray(b"\x00\xff"),
        "content_type": "application/octet-stream",
        "correlation_id": "c",
        "reply_to": "r",
        "group": "g",
        "deduplication_id": "d",
        "created_at": None,
        "headers": {"tenant": "blue", "empty": ""},
        "attempt": 1,
        "queue": queue,
    }
    assert rows["half"]["headers"] == {"half": "\\ud800"}
    assert rows["late"]["created_at"] is None
    assert queues.url not in frame._jdf.queryExecution().toString()
    assert {message.id for message in queues.take_all(queue)} == rows.keys()


def test_when_a_query_fails_then_it_sees_the_same_batch_again_and_drains(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    """R78: `availableNow` reads what is there in batches of the given size and ends; a query that
    is started again from its checkpoint is given identical batches, and nothing is left.
    """
    queue = queues.make()
    sent = [Message(body=b"%d" % number) for number in range(70)]
    queues.send(queue, sent)
    batches: dict[int, list[list[str]]] = {}
    failing = {1}

    def note(frame: Any, batch_id: int) -> None:
        batches.setdefault(batch_id, []).append([row["id"] for row in frame.select("id").collect()])
        if batch_id in failing:
            failing.remove(batch_id)
            raise RuntimeError("the sink is full")

    def run() -> Any:
        stream = reader(spark.readStream, queues, queue)
        stream = stream.option("spool", str(tmp_path / "spool")).option("maxPerBatch", "30").load()
        query = (
            stream.writeStream.foreachBatch(note)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        assert not query.isActive
        return query

    with pytest.raises(Exception, match="the sink is full"):
        run()
    assert set(batches) == {0, 1}
    # What arrives meanwhile belongs to later batches.
    queues.send(queue, late := [Message(body=b"late")])
    run()

    first, second = batches[1]
    assert first == second
    read = [id_ for runs in batches.values() for id_ in runs[-1]]
    assert sorted(read) == sorted(message.id for message in [*sent, *late])
    assert max(len(runs[-1]) for runs in batches.values()) <= 30
    assert queues.take_all(queue) == []
    # The batches before the last committed one may go, once they are old.
    assert sorted(path.name for path in (tmp_path / "spool").iterdir()) == [
        "acked",
        "lock",
        "segments",
        "spool.json",
    ]


def test_when_a_running_query_is_stopped_then_the_next_one_takes_over(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    """R78: a query that waits at the broker can be stopped, and its spool is free at once."""
    name = queues.make()
    read: Queue[str] = Queue()

    def note(frame: Any, batch_id: int) -> None:
        for row in frame.select("id").collect():
            read.put(row["id"])

    for round_ in ("first", "second"):
        stream = reader(spark.readStream, queues, name).option("spool", str(tmp_path / "spool"))
        # A poll that dies with the first query may take the second message with it, for a lease.
        stream = stream.option("lease", "10s").load()
        checkpoint = str(tmp_path / "checkpoint")
        query = stream.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
        running = query.start()
        queues.send(name, [Message(id=round_, body=b"x")])
        # A batch that was not committed before the stop comes once more.
        while read.get(timeout=60) != round_:
            continue
        running.stop()

    assert queues.take_all(name) == []


def test_when_an_option_is_wrong_then_the_error_says_what_to_do(spark: Any, queues: Queues) -> None:
    """R78: a mistake is found when the query is planned, and names the option."""
    with pytest.raises(Exception, match="there is no such option here; use gateway, lease"):
        reader(spark.read, queues, "q").option("maxcounts", "5").load().count()
    with pytest.raises(Exception, match="the queues of memory live in one process"):
        spark.read.format("pump").option("gateway", "memory://").option("queue", "q").load().count()
