"""The schema is what others build on: it changes on purpose or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import get_type_hints

import pyarrow.parquet as pq

from pump.events import Status
from pump.stores.ledger import ParquetLedger, SqliteLedger
from pump.stores.ledger.parquet import SCHEMA
from pump.stores.ledger.rows import COLUMNS, VERSION, ColumnKind, Row
from pump.testing.virtual_clock import VirtualClock

from .support import an_outcome, parquet_files, write

DOCS = Path(__file__).resolve().parents[2] / "docs" / "ledger.md"

GOLDEN_ARROW = """\
version: int32 not null
time: timestamp[us, tz=UTC] not null
message_id: string not null
type: string not null
queue: string not null
subscription: string not null
status: string not null
attempts: int32 not null
reason: string
error_type: string
detail: string
destination: string
run_s: double
age_s: double
gateway: string not null
pump: string not null"""

GOLDEN_SQLITE = """\
version INTEGER NOT NULL, time INTEGER NOT NULL, message_id TEXT NOT NULL, type TEXT NOT NULL, \
queue TEXT NOT NULL, subscription TEXT NOT NULL, status TEXT NOT NULL, attempts INTEGER NOT NULL, \
reason TEXT, error_type TEXT, detail TEXT, destination TEXT, run_s REAL, age_s REAL, \
gateway TEXT NOT NULL, pump TEXT NOT NULL"""


def test_when_the_schema_is_looked_at_then_it_is_the_one_that_was_published() -> None:
    assert SCHEMA.to_string(show_schema_metadata=False) == GOLDEN_ARROW
    assert SCHEMA.metadata == {b"pumphouse.ledger": b"1"}
    assert VERSION == 1


async def test_when_a_parquet_file_is_written_then_it_has_the_schema_and_is_compressed(
    tmp_path: Path, clock: VirtualClock
) -> None:
    await write(ParquetLedger(tmp_path), clock, an_outcome())

    [path] = parquet_files(tmp_path)
    file = pq.ParquetFile(path)
    group = file.metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert file.schema_arrow.equals(SCHEMA)
    assert {each.compression for each in columns.values()} == {"ZSTD"}
    repetitive = {name for name, each in columns.items() if each.has_dictionary_page}
    assert repetitive == {each.name for each in COLUMNS if each.is_repetitive}
    assert str(file.schema.column(1).logical_type) == (
        "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, is_from_converted_type=false, "
        "force_set_converted_type=false)"
    )


async def test_when_a_sqlite_file_is_written_then_it_has_the_same_columns(
    tmp_path: Path, clock: VirtualClock
) -> None:
    await write(SqliteLedger(tmp_path / "ledger.db"), clock, an_outcome())

    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        [[made]] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'outcomes'")
    assert made == f"CREATE TABLE outcomes ({GOLDEN_SQLITE})"


def test_when_a_row_is_made_then_its_fields_are_the_columns() -> None:
    python = {
        ColumnKind.INTEGER: int,
        ColumnKind.REAL: float,
        ColumnKind.TEXT: str,
        ColumnKind.TIME: int,
    }

    expected = {
        each.name: python[each.kind] | None if each.is_nullable else python[each.kind]
        for each in COLUMNS
    }
    assert get_type_hints(Row) == expected
    assert Row._fields == tuple(each.name for each in COLUMNS)


def test_when_the_documentation_lists_the_columns_then_it_is_up_to_date() -> None:
    rows = [
        f"| `{each.name}` | {each.kind.value}{', or null' if each.is_nullable else ''} "
        f"| {each.meaning} |"
        for each in COLUMNS
    ]

    assert "\n".join(rows) in DOCS.read_text(encoding="utf-8")


async def test_when_the_documentation_asks_in_sql_then_it_gets_an_answer(
    tmp_path: Path, clock: VirtualClock
) -> None:
    failed = an_outcome(1, status=Status.DEAD_LETTERED, destination="dead", detail="no")
    await write(SqliteLedger(tmp_path / "ledger.db"), clock, an_outcome(), failed)
    page = await asyncio.to_thread(DOCS.read_text, encoding="utf-8")
    block = page.split("```sql")[1].split("```")[0]

    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        by_type, failures = (
            connection.execute(statement.replace("'now'", "1750000000, 'unixepoch'")).fetchall()
            for statement in block.split(";")[:2]
        )

    assert by_type == [
        ("PlaceOrder", "dead-lettered", 1, 0.25),
        ("PlaceOrder", "processed", 1, 0.25),
    ]
    assert failures == [("2025-06-15 15:06:40", "m-1", "no")]
