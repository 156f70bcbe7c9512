"""DataFrames and streams into queues, on Spark, to SQS by `pump local` (R78)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pump.message import Message
from pump.spark.data.rows import RowIds
from tests.brokers.aws_account import AwsAccount

from .queues import Queues, queues_for

pytestmark = pytest.mark.spark


@pytest.fixture
def queues(spark: Any, local_aws: AwsAccount) -> Queues:
    return queues_for(spark, local_aws)


def writer(frame: Any, queues: Queues, queue: str) -> Any:
    made = frame.write.format("pump").mode("append")
    return made.option("gateway", queues.url).option("queue", queue)


def test_when_a_job_is_run_again_then_a_queue_that_de_duplicates_has_each_row_once(
    spark: Any, queues: Queues
) -> None:
    """R78: ids are made of job, partition and row, so a repeated task sends no second message."""
    queue = queues.make(".fifo")
    frame = spark.range(0, 60, 1, 2).selectExpr("cast(id as string) as body", "'Order' as type")

    for _ in range(2):
        writer(frame, queues, queue).option("job", "import-7").save()

    taken = queues.take_all(queue)
    expected = {RowIds(job="import-7", partition=at).of(row) for at in (0, 1) for row in range(30)}
    assert len(taken) == 60
    assert {message.id for message in taken} == expected
    assert {message.body for message in taken} == {b"%d" % number for number in range(60)}
    assert {message.type for message in taken} == {"Order"}


def test_when_what_was_read_is_filtered_and_written_then_the_messages_are_the_same(
    spark: Any, queues: Queues
) -> None:
    """R78: the columns of a read are those of a write."""
    source, target = queues.make(), queues.make()
    sent = [
        Message(id="keep", body=b"\xff", type="Order", created_at_s=1.5, headers={"a": "b"}),
        Message(id="leave", body=b"", type="Other"),
    ]
    queues.send(source, sent)

    read = spark.read.format("pump").option("gateway", queues.url).option("queue", source).load()
    writer(read.where("type = 'Order'"), queues, target).save()

    [taken] = queues.take_all(target)
    assert (taken.id, taken.body, taken.type) == ("keep", b"\xff", "Order")
    assert (taken.created_at_s, taken.headers) == (1.5, {"a": "b"})


def test_when_a_stream_is_written_then_ids_are_made_of_query_batch_partition_and_row(
    spark: Any, queues: Queues, tmp_path: Path
) -> None:
    """R78: a micro-batch that is repeated makes the same messages."""
    queue = queues.make()
    spark.range(0, 20, 1, 1).selectExpr("cast(id as string) as body").write.parquet(
        str(tmp_path / "rows")
    )
    stream = spark.readStream.schema("body string").parquet(str(tmp_path / "rows"))

    query = (
        stream.writeStream.format("pump")
        .option("gateway", queues.url)
        .option("queue", queue)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)

    ids = RowIds(job=f"{query.id}/0", partition=0)
    taken = {message.id: message.body for message in queues.take_all(queue)}
    assert taken == {ids.of(row): b"%d" % row for row in range(20)}


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("'x' as type", "column 'body'=None: every row needs one"),
        ("'x' as body, 1 as tenant", "column 'tenant'='int': no such column; a row may have id,"),
        ("'x' as body, 1 as type", "column 'type'='int': cast it to string"),
    ],
)
def test_when_a_column_is_wrong_then_nothing_is_sent_and_it_is_named(
    spark: Any, queues: Queues, columns: str, complaint: str
) -> None:
    """R78: columns are checked before the first row is read."""
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as raised:
        writer(spark.range(3).selectExpr(*columns.split(", ")), queues, "q").save()

    assert complaint in str(raised.value)


def test_when_a_row_is_wrong_then_the_error_names_row_and_column(
    spark: Any, queues: Queues
) -> None:
    """R78: a null body is found with its row."""
    frame = spark.range(0, 10, 1, 1).selectExpr("if(id = 7, null, 'x') as body")

    with pytest.raises(Exception, match="row 7 of partition 0") as raised:
        writer(frame, queues, queues.make()).save()

    assert "column 'body'" in str(raised.value)
