"""Messages as data: queues as DataFrames and streams, and DataFrames into queues.

    register(spark)
    letters = spark.read.format("pump").option("gateway", url).option("queue", "orders-dlq").load()

`docs/spark-data.md` says what may be relied on.
"""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Teach a session the format "pump": `spark.read.format("pump")`, `readStream`, `write` and
    `writeStream`. Once a session; again does no harm.
    """
    from .source import LocalPumpSource, PumpSource

    is_one_machine = str(spark.sparkContext.master).startswith("local")
    spark.dataSource.register(LocalPumpSource if is_one_machine else PumpSource)


__all__ = ["register"]
