"""Parquet: the only module that knows pyarrow. Loaded by those who read or write such files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import StorageFailed
from ...percentiles import bucket_edges
from .rows import COLUMNS, VERSION, ColumnKind, Row, translated
from .tally import NO_FAILURES, LedgerTally, Query

_TYPES = {
    ColumnKind.INTEGER: pa.int32(),
    ColumnKind.REAL: pa.float64(),
    ColumnKind.TEXT: pa.string(),
    ColumnKind.TIME: pa.timestamp("us", tz="UTC"),
}
SCHEMA = pa.schema(
    [pa.field(each.name, _TYPES[each.kind], nullable=each.is_nullable) for each in COLUMNS],
    metadata={"pumphouse.ledger": str(VERSION)},
)
_ROWS_A_GROUP = 131_072
_ROWS_A_PART = 65_536
"""Read into memory at once."""


def write_rows(batches: Iterable[list[Row]], path: Path) -> None:
    """Write a file with these rows, in their order."""
    with arrow_translated(path):
        table = pa.Table.from_batches(map(_record_batch, batches), SCHEMA)
        pq.write_table(
            table,
            path,
            compression="zstd",
            row_group_size=_ROWS_A_GROUP,
            # Without them a bit that a disk has turned reads as another number, unnoticed.
            write_page_checksum=True,
            # Ids and times hardly repeat: a dictionary of them would only take room.
            use_dictionary=[each.name for each in COLUMNS if each.is_repetitive],
        )


def _record_batch(rows: list[Row]) -> Any:
    arrays = [
        pa.array(values, type=field.type)
        for values, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def tally_file(path: Path, query: Query, tally: LedgerTally) -> int | None:
    """Add what a file holds, but for its failures; say when the newest of these was.

    `StorageFailed`, and nothing added, for a file that is none of the ledger's.
    """
    counted = LedgerTally()
    newest_us = None
    for table in _tables(path, _COUNTED, query):
        _count(table, query, counted)
        failed = table.filter(~pc.field("status").isin(NO_FAILURES))
        if failed.num_rows:
            latest_us = pc.max(failed["time_us"]).as_py()
            newest_us = latest_us if newest_us is None else max(newest_us, latest_us)
    tally.add(counted)
    return newest_us


def oldest_us(path: Path) -> int | None:
    """When the first row of a file was, as far as its statistics tell."""
    with translated(path), arrow_translated(path), opened(path) as file:
        check_columns(file.schema_arrow, path)
        at = file.schema_arrow.get_field_index("time")
        found = [
            file.metadata.row_group(group).column(at).statistics
            for group in range(file.metadata.num_row_groups)
        ]
        oldest = [each.min for each in found if each is not None and each.has_min_max]
    return round(min(oldest).timestamp() * 1e6) if oldest else None


def newest_failures(path: Path, query: Query) -> list[Row]:
    """The newest failures in a file, at most as many as the query wants."""
    rows: list[Row] = []
    for table in _tables(path, [each.name for each in COLUMNS], query):
        failed = table.filter(~pc.field("status").isin(NO_FAILURES))
        newest = failed.sort_by([("time_us", "descending")]).slice(0, query.max_failures)
        rows += [Row._make(each.values()) for each in newest.to_pylist()]
        rows = sorted(rows, key=lambda row: -row.time)[: query.max_failures]
    return rows


_COUNTED = ["time", "type", "queue", "status", "reason", "run_s"]


def _tables(path: Path, columns: list[str], query: Query) -> Iterator[Any]:
    """The rows of a file that the query asks for, in parts, with `time_us` instead of `time`."""
    with translated(path), arrow_translated(path), opened(path) as file:
        check_columns(file.schema_arrow, path)
        for batch in file.iter_batches(batch_size=_ROWS_A_PART, columns=columns):
            table = pa.Table.from_batches([batch])
            at = columns.index("time")
            time_us = table["time"].cast(_TYPES[ColumnKind.TIME], safe=False).cast(pa.int64())
            table = table.set_column(at, "time_us", time_us).filter(_condition(query))
            if table.num_rows:
                yield table


def opened(path: Path) -> Any:
    """The file, which is refused where its pages are not what was written."""
    return pq.ParquetFile(path, page_checksum_verification=True)


def check_columns(found: Any, path: Path) -> None:
    """Whatever made the file, such as a job that joined small ones: the columns must be ours."""
    for column in COLUMNS:
        position = found.get_field_index(column.name)
        if position < 0 or not _fits(found.field(position).type, column.kind):
            why = f"no file of the ledger's: its column {column.name!r} is missing or another type"
            raise StorageFailed(str(path), f"{why}; move it away")


def _fits(found: Any, kind: ColumnKind) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    fits = {
        ColumnKind.INTEGER: pa.types.is_integer,
        ColumnKind.REAL: pa.types.is_floating,
        ColumnKind.TEXT: lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_),
        ColumnKind.TIME: pa.types.is_timestamp,
    }
    return bool(fits[kind](found))


def _condition(query: Query) -> Any:
    condition = pc.field("time_us") >= query.since_us
    for column, choices in query.choices.items():
        condition &= pc.field(column).isin(list(choices))
    return condition


def _count(table: Any, query: Query, tally: LedgerTally) -> None:
    slots = pc.divide(pc.subtract(table["time_us"], query.origin_us), query.slot_us)
    by_slot = _grouped({"slot": slots, "status": table["status"]})
    for row in by_slot:
        tally.slots[row["slot"], row["status"]] += row["count_all"]
    reasons = pc.fill_null(table["reason"].cast(pa.string()), "")
    for row in _grouped({"type": table["type"], "status": table["status"], "reason": reasons}):
        tally.outcomes[row["type"], row["status"], row["reason"]] += row["count_all"]
    ran = table.filter(pc.is_valid(table["run_s"]))
    buckets = _buckets(ran["run_s"])
    for row in _grouped({"type": ran["type"], "bucket": buckets, "run_s": ran["run_s"]}, "run_s"):
        tally.runs[row["type"], int(row["bucket"])] += row["count_all"]
        tally.saw_run(row["type"], row["run_s_max"])


def _buckets(run_s: Any) -> Any:
    """What `bucket_of` does, for many at once."""
    shortest_s, edge = bucket_edges()
    return pc.ceil(pc.divide(pc.ln(pc.max_element_wise(run_s, shortest_s)), edge))


def _grouped(columns: dict[str, Any], longest: str = "") -> list[dict[str, Any]]:
    keys = [name for name in columns if name != longest]
    wanted = [([], "count_all"), *([(longest, "max")] if longest else [])]
    rows: list[dict[str, Any]] = pa.table(columns).group_by(keys).aggregate(wanted).to_pylist()
    return rows


@contextmanager
def arrow_translated(path: Path) -> Iterator[None]:
    """Raise `StorageFailed` instead of Arrow's errors."""
    try:
        yield
    except (pa.ArrowException, ValueError) as error:
        # Arrow's I/O errors are the system's own, and pass. Names of columns that are no UTF-8
        # any more are Python's.
        if isinstance(error, OSError):
            raise
        raise StorageFailed(
            str(path), f"cannot be read as Parquet ({error}); move it away"
        ) from error
