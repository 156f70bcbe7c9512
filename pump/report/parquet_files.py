"""Parquet files of a report: the ledger's on the way in, the tables on the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..stores.ledger.parquet import SCHEMA, arrow_translated, check_columns, opened
from ..stores.ledger.rows import translated
from .tables import ResultTable, ValueKind

_TYPES = {
    ValueKind.TEXT: pa.string(),
    ValueKind.COUNT: pa.int64(),
    ValueKind.SHARE: pa.float64(),
    ValueKind.RATE: pa.float64(),
    ValueKind.SECONDS: pa.float64(),
    ValueKind.TIME: pa.timestamp("us", tz="UTC"),
}
_ROWS_AT_ONCE = 65_536


def has_our_types(path: Path) -> bool:
    """Whether a file's columns are exactly the ledger's; `StorageFailed` when they cannot be.

    Some other job may have joined small files, and made 64 bits of 32 or a dictionary of texts.
    """
    with translated(path), arrow_translated(path), opened(path) as file:
        found = file.schema_arrow
        check_columns(found, path)
        return all(found.field(field.name).type == field.type for field in SCHEMA)


def convert(path: Path, to: Path) -> None:
    """Write the file anew, with the ledger's own types."""
    with (
        translated(path),
        arrow_translated(path),
        opened(path) as file,
        pq.ParquetWriter(to, SCHEMA) as writer,
    ):
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=SCHEMA.names):
            table = pa.Table.from_batches([batch]).select(SCHEMA.names)
            writer.write_table(table.cast(SCHEMA, safe=False))


def verify(path: Path) -> None:
    """Read all of a file; `StorageFailed` where it is damaged."""
    with translated(path), arrow_translated(path), opened(path) as file:
        for _ in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=SCHEMA.names):
            pass


def read_arrow(paths: Sequence[Path]) -> Any:
    """The rows of files that were written here, as one Arrow table."""
    return pa.concat_tables([pq.read_table(path) for path in paths])


class TableWriter:
    """Writes the rows of one table into a file, in parts."""

    def __init__(self, table: ResultTable, path: Path) -> None:
        self._schema = pa.schema([(each.name, _TYPES[each.kind]) for each in table.columns])
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self.row_count = 0

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows; half a surrogate pair is written as an escape."""
        columns = list(zip(*rows, strict=True))
        if not columns:
            return
        arrays = [
            pa.array(_encodable(values), type=field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self.row_count += len(columns[0])

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


def write_table(table: ResultTable, rows: Iterable[Sequence[Any]], path: Path) -> None:
    """Write a file with all of a table's rows, or with none."""
    with arrow_translated(path):
        writer = TableWriter(table, path)
        try:
            writer.write(rows)
        finally:
            writer.close()


def _encodable(values: Sequence[Any]) -> list[Any]:
    return [
        each.encode("utf-8", "backslashreplace").decode() if isinstance(each, str) else each
        for each in values
    ]
