"""Spark orders: from SQS through the pump on Spark to a Parquet table and a report.

Run it:   make demo-spark          (or: python -m samples.spark_orders --help)
On SQS:   python -m samples.spark_orders --gateway sqs://eu-west-1
          (credentials come from the environment; it makes and uses the queues orders,
          orders-accepted, orders-dead and orders-invalid)

1. `pump local` serves SQS from a folder, on a port that is free.
2. Customers order: most orders are well, some fail once, some always, some make no sense, and
   some customers press the button twice.
3. The shop's app runs on Spark, on all cores, until its queue is empty. Of every order that it
   accepts it tells the queue orders-accepted.
4. Spark reads that queue as a stream into a table that has each order once. Delivery is at least
   once: whoever wants a thing once must say what makes it the same thing. Here it is the number
   of the order.
5. The report says what became of every message, from the ledger and the dead letters. DuckDB makes
   it: for so few rows Spark would only be slower, as `--report-on spark` shows.

Expect:   serving   SQS on http://127.0.0.1:40571, by `pump local`
          sent      2,040 messages for 2,000 orders
          handled   1,920 well, 320 tried again, 60 dead, 60 invalid; 12 s on Spark
          accepted  1,880 orders, in …/.pumphouse/spark-orders/table
          report    …/.pumphouse/spark-orders/report/report.html
          (1,920 were handled well for 1,880 orders: 40 were sent twice)
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pump.report.duckdb_engine import duckdb_engine
from pump.report.job import ReportOptions, run_report
from pump.report.snapshot import take_snapshot
from pump.spark.data import register
from pump.spark.report import spark_engine
from pump.spark.session import SparkOptions, spark_session
from pump.subscription import MakeChannels, QueueSpec

from .shop import ACCEPTED, DEAD, INVALID, ORDERS, app, quiet, some_orders

FOLDERS = ("sqs", "ledger", "accepted", "table", "report")
CONF = {"spark.sql.shuffle.partitions": "2"}  # The default, 200, is for larger tables.


def main() -> None:
    options = parse()
    if not options.gateway:
        # Any will do for `pump local`. Before Spark starts, whose workers inherit them.
        os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")
    with spark_session(SparkOptions(master=options.master, conf=CONF)) as spark:
        run(spark, options)


def run(spark: Any, options: argparse.Namespace) -> None:
    """Everything, on a session of whoever calls."""
    for name in FOLDERS:
        shutil.rmtree(options.out / name, ignore_errors=True)
    with queues(options) as gateway:
        app.override(gateway=gateway)
        sent = asyncio.run(place(options.orders))
        print(f"sent      {sent:,} messages for {options.orders:,} orders")
        handle(spark, options.out / "ledger")
        tabulate(spark, gateway, options.out)
        report(spark, options.out, options.report_on)


async def place(count: int) -> int:
    """Send the orders, a hundred a call."""
    orders = list(some_orders(count))
    async with app:
        [subscription] = app.subscriptions
        for spec in (*subscription.queue_specs(), QueueSpec(name=ACCEPTED)):
            await app.admin.ensure(spec, MakeChannels.CREATE)
        for start in range(0, len(orders), 100):
            await app.post_all(orders[start : start + 100], queue=ORDERS)
    return len(orders)


def handle(spark: Any, ledger: Path) -> None:
    """Run the app in Spark tasks until the queue is empty."""
    run = app.run_on_spark(spark, until_empty=True, ledger=ledger, prepare=quiet)
    [counts] = run.counts.values()
    print(
        f"handled   {counts.processed:,} well, {counts.retried:,} tried again, "
        f"{counts.dead_lettered:,} dead, {counts.invalid:,} invalid; {run.run_s:.0f} s on Spark"
    )


def tabulate(spark: Any, gateway: str, out: Path) -> None:
    """Get what was accepted into a table, each order once."""
    from pyspark.sql.functions import col, from_json

    register(spark)
    accepted = (
        spark.readStream.format("pump")
        .option("gateway", gateway)
        .option("queue", ACCEPTED)
        .option("spool", str(out / "accepted" / "spool"))
        .load()
    )
    columns = "order_id INT, item STRING, quantity INT"
    orders = accepted.select(from_json(col("body").cast("string"), columns).alias("order"))
    (
        orders.select("order.*")
        .dropDuplicates(["order_id"])
        .writeStream.format("parquet")
        .option("checkpointLocation", str(out / "accepted" / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(out / "table"))
        .awaitTermination()
    )
    found = spark.read.parquet(str(out / "table"))
    print(f"accepted  {found.count():,} orders, in {out / 'table'}")


def report(spark: Any, out: Path, engine_name: str) -> None:
    """Say what became of every message, and what lies in the dead-letter queues."""
    dead_letters = out / "dead-letters.parquet"
    asyncio.run(look_at_dead_letters(dead_letters))
    options = ReportOptions(ledger=out / "ledger", dead_letters=dead_letters, out=out / "report")
    engine = duckdb_engine if engine_name == "duckdb" else spark_engine(spark)
    print(f"report    {run_report(options, engine).page}")


async def look_at_dead_letters(path: Path) -> None:
    """They stay where they are."""
    async with app:
        await take_snapshot(app.gateway, [DEAD, INVALID], path)


@contextmanager
def queues(options: argparse.Namespace) -> Iterator[str]:
    """The gateway that was asked for, or one that is served here meanwhile."""
    if options.gateway:
        yield options.gateway
        return
    command = [sys.executable, "-m", "pump", "local", "--port", "0", "--log-level", "warning"]
    with subprocess.Popen(
        [*command, "--data", str(options.out / "sqs")], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            endpoint = server.stdout.readline().split()[-1]
            print(f"serving   SQS on {endpoint}, by `pump local`")
            yield f"sqs://us-east-1?endpoint={endpoint}"
        finally:
            server.terminate()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m samples.spark_orders", description=__doc__)
    parser.add_argument("--orders", type=int, default=2000, help="how many (%(default)s)")
    parser.add_argument("--gateway", help="an sqs:// URL; default: a `pump local` of its own")
    parser.add_argument("--master", default="local[*]", help="Spark's master (%(default)s)")
    parser.add_argument(
        "--report-on",
        choices=["duckdb", "spark"],
        default="duckdb",
        help="the same SQL on either; Spark is for ledgers that one machine does not hold "
        "(%(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".pumphouse/spark-orders"),
        help="the folder for everything; what an earlier run left there is removed (%(default)s)",
    )
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    return options


if __name__ == "__main__":
    main()
