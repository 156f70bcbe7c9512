"""Redrives on Spark: the selection by Spark SQL, the sending by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateways.sqs import SqsGateway, TransportKind
from pump import App, MakeChannels
from pump.cli.redrive import RedriveOptions
from pump.errors import ConfigurationError, StorageFailed
from pump.message import Message
from pump.outcome import ACK, Settlement
from pump.queue_browser import Seen
from pump.redrive.folder import RedriveCounts, opened
from pump.redrive.rows import SnapshotWriter, row_of
from pump.redrive.run import PreparedRun, left_of, prepare
from pump.redrive.selection import DuckdbSelector, entries_in
from pump.spark.redrive import (
    JobFailed,
    RedriveTask,
    RedriveTaskResult,
    SparkSelector,
    run_redrive_tasks,
)
from pump.stores.ledger.parquet_ledger import ParquetLedger
from pump.stores.ledger.reading import ParquetReader
from pump.stores.ledger.tally import Query
from pump.subscription import QueueSpec, Subscription
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings
from tests.redrive.rig import DEAD, a_dead_letter

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

TARGET = "orders.fifo"
LETTERS = [a_dead_letter(n, type="Order" if n % 3 else "Payment") for n in range(300)]
ORDERS = sorted(letter.id for letter in LETTERS if letter.type == "Order")
OTHERS = sorted(letter.id for letter in LETTERS if letter.type != "Order")
WHERE = "type = 'Order' AND reason = 'DeliveryError'"


@pytest.mark.parametrize(
    ("where", "limit"),
    [
        ("headers['attempts'] = '3' AND attempts = 3 AND body LIKE '%7%'", None),
        ("rejected_at >= TIMESTAMP '2026-11-01 00:00:30' -- the second half", 7),
    ],
)
def test_when_a_condition_is_given_then_spark_selects_what_duckdb_selects(
    spark: Any, tmp_path: Path, where: str, limit: int | None
) -> None:
    """R78: the same command line on one machine and on many."""
    snapshot = tmp_path / "snapshot.parquet"
    writer = SnapshotWriter(snapshot)
    writer.write([row_of(Seen(message=letter)) for letter in LETTERS])
    writer.finish()
    for selector, name in ((DuckdbSelector(), "duckdb"), (SparkSelector(spark), "spark")):
        selector.check(where)
        selector.select(snapshot, where, limit, tmp_path / name)

    assert entries_in(tmp_path / "spark") == entries_in(tmp_path / "duckdb")
    assert entries_in(tmp_path / "spark")[1] > 0


@pytest.mark.parametrize(
    "where",
    [
        "1=1; DROP TABLE x",
        "type = 'Order' LIMIT 5",
        "TRUE) LIMIT (5",
        "nothing = 1",
        "type = 'Order",
        "attempts",
        "NULL",
        "count(*) > 1",
        "reflect('java.lang.System', 'getProperty', 'user.home') LIKE '%'",
        "id IN (SELECT JAVA_METHOD /* */ ('java.util.UUID', 'randomUUID'))",
        "EXISTS (SELECT * FROM text.`file:/etc/hosts`)",
    ],
)
def test_when_it_is_no_condition_then_spark_says_why_and_the_columns_are_named(
    spark: Any, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R78: in one line, without a Java stack trace."""
    with pytest.raises(ConfigurationError, match="columns: id, type, reason") as error:
        SparkSelector(spark).check(where)

    assert "\n" not in str(error.value)
    assert "org.apache" not in str(error.value)
    assert not caplog.records


# -- tasks ---------------------------------------------------------------------------------------


@pytest.fixture
async def app(local_aws: AwsAccount) -> AsyncIterator[App]:
    async with App(SqsGateway(sqs_settings(local_aws, TransportKind.AIOBOTO3))) as app:
        for queue in (DEAD, TARGET):
            await app.admin.ensure(QueueSpec(name=queue), MakeChannels.CREATE)
        await app.post_all(LETTERS, queue=DEAD)
        yield app


@pytest.fixture
def url(spark: Any, local_aws: AwsAccount) -> Iterator[str]:
    """The gateway's, for workers whose environment has the account's keys."""
    environment = spark.sparkContext.environment
    environment["AWS_ACCESS_KEY_ID"] = local_aws.access_key_id
    environment["AWS_SECRET_ACCESS_KEY"] = local_aws.secret_access_key
    yield f"sqs://{local_aws.region}?endpoint={local_aws.endpoint_url}"
    del environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]


async def prepared_in(folder: Path, app: App, url: str, spark: Any) -> PreparedRun:
    plan = RedriveOptions(queue=DEAD, to=TARGET, where=WHERE).plan(url)
    manager = opened(folder, plan)
    queue = await asyncio.to_thread(manager.__enter__)
    try:
        return await prepare(
            app.gateway, queue, plan, SparkSelector(spark), stopping=asyncio.Event()
        )
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


async def taken(app: App, queue: str, count: int) -> list[str]:
    port = app.gateway.consumer(Subscription(queue=queue, request=Message))
    found: list[str] = []
    while len(found) < count:
        deliveries = await port.receive(max_count=10, wait_s=5)
        assert deliveries, f"only {len(found)} came"
        found += [each.message.id for each in deliveries]
        await port.settle([Settlement(each, ACK) for each in deliveries])
    await port.aclose()
    stats = await app.admin.stats(queue)
    assert (stats.visible, stats.in_flight) == (0, 0)
    return sorted(found)


async def test_when_tasks_are_stopped_and_run_again_then_each_message_is_moved_once(
    spark: Any, app: App, url: str, tmp_path: Path
) -> None:
    """R78: two tasks, each with a record of its own; every message is a row of the ledger."""
    ledger = ParquetLedger(tmp_path / "ledger")
    stopping = asyncio.Event()
    first = await prepared_in(tmp_path / "runs", app, url, spark)
    slow = RedriveTask(gateway=url, task=first.task(rate=10, batch=5), ledger=ledger)

    def stop(counts: RedriveCounts) -> None:
        if counts.removed:
            stopping.set()

    moved = await run_redrive_tasks(spark, slow, 2, stopping=stopping, on_moved=stop)

    assert moved.failures == ()
    assert 0 < moved.counts.sent == moved.counts.removed < len(ORDERS)
    again = await prepared_in(tmp_path / "runs", app, url, spark)
    assert (again.is_resumed, again.run) == (True, first.run)
    rest = await run_redrive_tasks(
        spark,
        RedriveTask(gateway=url, task=again.task(rate=None, batch=20), ledger=ledger),
        2,
        stopping=asyncio.Event(),
    )
    assert moved.counts.sent + rest.counts.sent == len(ORDERS)
    assert not await asyncio.to_thread(left_of, again)
    assert len(await asyncio.to_thread(lambda: list(again.run.path.glob("*.record")))) == 4
    tally = await asyncio.to_thread(ParquetReader(tmp_path / "ledger").tally, Query())
    assert tally.outcomes == {("Order", "redriven", "DeliveryError"): len(ORDERS)}
    assert await taken(app, TARGET, len(ORDERS)) == ORDERS
    assert await taken(app, DEAD, len(OTHERS)) == OTHERS


async def test_when_a_task_cannot_work_then_the_driver_says_it_in_one_line(
    spark: Any, app: App, url: str, tmp_path: Path
) -> None:
    """R78: an error of ours is returned, not tried again; one of Spark's is named."""
    prepared = await prepared_in(tmp_path / "runs", app, url, spark)
    redrive_task = RedriveTask(gateway=url, task=prepared.task(rate=None, batch=20))
    (tmp_path / "file").touch()
    run = partial(run_redrive_tasks, spark, tasks=1, stopping=asyncio.Event())

    unwritable: RedriveTaskResult = await run(
        redrive_task=RedriveTask(
            gateway=url, task=redrive_task.task, ledger=ParquetLedger(tmp_path / "file" / "ledger")
        )
    )
    with pytest.raises(JobFailed, match="Spark gave the job up"):
        await run(redrive_task=RedriveTask(gateway=url, task=redrive_task.task, prepare=_fail))

    [failure] = unwritable.failures
    assert isinstance(failure, StorageFailed)
    assert unwritable.counts.sent == 0
    assert await taken(app, DEAD, len(LETTERS)) == sorted([*ORDERS, *OTHERS])


def _fail() -> None:
    raise RuntimeError("this machine has no disk")
