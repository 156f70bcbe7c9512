"""Schema: the columns as Spark knows them; `columns.py` has the same for Arrow."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("type", StringType(), nullable=False),
        StructField("body", BinaryType(), nullable=False),
        StructField("content_type", StringType(), nullable=False),
        StructField("correlation_id", StringType()),
        StructField("reply_to", StringType()),
        StructField("group", StringType()),
        StructField("deduplication_id", StringType()),
        StructField("created_at", TimestampType()),
        StructField(
            "headers", MapType(StringType(), StringType(), valueContainsNull=False), nullable=False
        ),
        StructField("attempt", IntegerType()),
        StructField("queue", StringType(), nullable=False),
    ]
)
