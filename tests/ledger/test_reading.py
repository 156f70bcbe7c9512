"""Reading: what many rows come to, whoever writes meanwhile, and whatever lies in the folder."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pump.errors import StorageFailed
from pump.percentiles import bucket_of, middle_of
from pump.postgres.settings import PostgresSettings
from pump.stores.ledger import parquet, parquet_ledger
from pump.stores.ledger.parquet import write_rows
from pump.stores.ledger.parquet_ledger import ParquetStore, RollOptions
from pump.stores.ledger.postgres_ledger import LedgerTable
from pump.stores.ledger.reading import LedgerReader, ParquetReader, PostgresReader, SqliteReader
from pump.stores.ledger.rows import Row, RowStore
from pump.stores.ledger.sqlite_ledger import LedgerFile
from pump.stores.ledger.tally import LedgerTally, Query

from .support import a_row, ids, read_only

DAY_US = 86_400_000_000
STATUSES = ["processed", "processed", "processed", "retrying", "dead-lettered", "lease-lost"]


def some_rows(count: int, seed: int = 1) -> list[Row]:
    chance = random.Random(seed)
    return [
        a_row(
            message_id=f"m-{number}",
            time=chance.randrange(3 * DAY_US) + number % 7,
            type=chance.choice(["PlaceOrder", "Pay", ""]),
            queue=chance.choice(["orders", "payments"]),
            status=chance.choice(STATUSES),
            reason=chance.choice([None, "DeliveryError", "Unacceptable"]),
            run_s=chance.choice([None, chance.expovariate(10), 0.0]),
        )
        for number in range(count)
    ]


def sqlite_store(folder: Path) -> tuple[RowStore, LedgerReader]:
    return LedgerFile(folder / "l.db", None), SqliteReader(folder / "l.db")


def parquet_store(folder: Path) -> tuple[RowStore, LedgerReader]:
    options = RollOptions(roll_rows=300, roll_every=timedelta(hours=1), keep=None)
    return ParquetStore(folder / "l", options), ParquetReader(folder / "l")


@pytest.fixture(
    params=[sqlite_store, parquet_store, pytest.param(None, marks=pytest.mark.broker)],
    ids=["sqlite", "parquet", "postgres"],
)
def make(request: pytest.FixtureRequest) -> Make:
    if request.param is not None:
        found: Make = request.param
        return found
    settings = PostgresSettings.from_url(request.getfixturevalue("postgres_schema"))
    return lambda _: (LedgerTable(settings, None), PostgresReader(settings))


Make = Callable[[Path], tuple[RowStore, LedgerReader]]


def expected_tally(rows: list[Row], query: Query) -> LedgerTally:
    """The same, counted row by row."""
    tally = LedgerTally()
    for row in rows:
        if row.time < query.since_us or any(
            getattr(row, column) not in choices for column, choices in query.choices.items()
        ):
            continue
        tally.slots[(row.time - query.origin_us) // query.slot_us, row.status] += 1
        tally.outcomes[row.type, row.status, row.reason or ""] += 1
        if row.run_s is not None:
            tally.runs[row.type, bucket_of(row.run_s)] += 1
            tally.longest_s[row.type] = max(row.run_s, tally.longest_s.get(row.type, 0.0))
        if row.status != "processed":
            tally.failures.append(row)
    tally.failures.sort(key=lambda row: -row.time)
    del tally.failures[query.max_failures :]
    return tally


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(since_us=DAY_US + 5, origin_us=DAY_US, slot_us=3_600_000_000, max_failures=3),
        Query(queues=("orders",), types=("PlaceOrder", ""), max_failures=500),
        Query(reasons=("Unacceptable",), statuses=("retrying", "lease-lost")),
        Query(types=("nobody",)),
    ],
    ids=["all", "since", "queue and type", "reason and status", "none"],
)
def test_when_rows_are_tallied_then_each_that_was_asked_for_counts_once(
    make: Make, query: Query, tmp_path: Path
) -> None:
    """In files of several days and, of Parquet, in a journal as well."""
    rows = some_rows(1_000)
    store, reader = make(tmp_path)
    store.append(rows[:700])
    store.care(0.0)
    store.append(rows[700:])

    tally = reader.tally(query)

    assert tally == expected_tally(rows, query)
    store.close(0.0)
    again = reader.tally(query)
    assert (again.outcomes, again.slots) == (tally.outcomes, tally.slots)
    assert ids(again.failures) == ids(tally.failures)


def test_when_there_are_rows_then_the_oldest_is_known(make: Make, tmp_path: Path) -> None:
    store, reader = make(tmp_path)
    store.open()
    assert reader.oldest_us() is None
    store.append([a_row(time=7)])
    assert reader.oldest_us() == 7
    store.care(0.0)
    store.append([a_row(time=2 * DAY_US)])

    assert reader.oldest_us() == 7

    store.close(0.0)
    assert reader.oldest_us() == 7


def test_when_nothing_is_written_yet_then_the_tally_is_empty(make: Make, tmp_path: Path) -> None:
    store, reader = make(tmp_path)
    store.open()

    assert reader.tally(Query()) == LedgerTally()

    store.close(0.0)


def test_when_rows_are_rolled_while_they_are_read_then_none_is_missed_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look into the journal and a look at the files, everything moves."""
    store, reader = parquet_store(tmp_path)
    store.append(some_rows(500))
    real = parquet_ledger.days_in

    def roll_first(folder: Path) -> Any:
        monkeypatch.setattr(parquet_ledger, "days_in", real)
        store.care(0.0)
        return real(folder)

    monkeypatch.setattr(parquet_ledger, "days_in", roll_first)

    assert reader.tally(Query()).row_count == 500

    store.close(0.0)


def test_when_a_journal_is_removed_while_it_is_looked_for_then_that_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = parquet_store(tmp_path)
    store.append(some_rows(5))
    store.close(0.0)
    gone = tmp_path / "l" / "_journal" / "gone.db"
    monkeypatch.setattr(parquet_ledger, "journals_in", lambda folder: [gone])

    tally = reader.tally(Query())

    assert (tally.row_count, tally.skipped) == (5, [])


def test_when_only_recent_days_are_asked_for_then_older_files_are_not_even_opened(
    tmp_path: Path,
) -> None:
    store, reader = parquet_store(tmp_path)
    store.append([a_row(time=5), a_row(time=5 * DAY_US)])
    store.close(0.0)
    for path in (tmp_path / "l" / "day=1970-01-01").iterdir():
        path.write_bytes(b"rubbish")

    tally = reader.tally(Query(since_us=2 * DAY_US))

    assert (tally.row_count, tally.skipped) == (1, [])


def test_when_foreign_or_damaged_files_lie_around_then_they_are_named_and_left_alone(
    tmp_path: Path,
) -> None:
    store, reader = parquet_store(tmp_path)
    store.append(some_rows(50))
    store.close(0.0)
    folder = tmp_path / "l"
    day = folder / "day=1970-01-01"
    [whole] = day.iterdir()
    (day / "torn.parquet").write_bytes(whole.read_bytes()[:-100])
    (day / "empty.parquet").touch()
    (day / "notes.txt").write_text("not ours")
    (day / "_SUCCESS").touch()
    (folder / ".hidden").touch()
    pq.write_table(pa.table({"time": [1, 2]}), day / "other.parquet")
    (folder / "_journal" / "diary.db").write_text("dear diary " * 100)
    (folder / "README.txt").write_text("hello")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    tally = reader.tally(Query())

    assert tally.row_count == 50
    assert {Path(path).name for path, _ in tally.skipped} == {
        *("torn.parquet", "empty.parquet", "notes.txt", "other.parquet", "diary.db", "README.txt")
    }
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("column", ["run_s", "time", "message_id"])
def test_when_a_byte_of_a_file_has_turned_then_the_file_is_named_and_the_others_are_read(
    tmp_path: Path, column: str
) -> None:
    """Counted columns and others: the last byte of a page would read as another value."""
    folder = tmp_path / "l" / "day=1970-01-01"
    folder.mkdir(parents=True)
    chance = random.Random(1)  # Numbers of which nothing can be compressed are stored as they are.
    rows = [
        a_row(message_id=f"m-{number}", status="retrying", time=number, run_s=chance.random())
        for number in range(9)
    ]
    write_rows([rows], folder / "whole.parquet")
    spoilt = folder / "spoilt.parquet"
    write_rows([rows], spoilt)
    group = pq.ParquetFile(spoilt).metadata.row_group(0)
    chunk = group.column(parquet.SCHEMA.get_field_index(column))
    content = bytearray(spoilt.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    spoilt.write_bytes(content)

    tally = ParquetReader(tmp_path / "l").tally(Query())

    assert [Path(path).name for path, _ in tally.skipped] == ["spoilt.parquet"]
    assert [row.message_id for row in tally.failures] == [f"m-{n}" for n in range(8, -1, -1)]


def test_when_the_name_of_a_column_is_no_text_any_more_then_the_file_is_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "l" / "day=1970-01-01" / "spoilt.parquet"
    path.parent.mkdir(parents=True)
    write_rows([some_rows(9)], path)
    path.write_bytes(path.read_bytes().replace(b"status", b"\x8ctatus"))
    reader = ParquetReader(tmp_path / "l")

    assert [Path(path).name for path, _ in reader.tally(Query()).skipped] == ["spoilt.parquet"]
    assert reader.oldest_us() is None


def test_when_another_tool_has_joined_the_files_then_they_are_read_all_the_same(
    tmp_path: Path,
) -> None:
    """Other names, nanoseconds, dictionaries, no remarks of ours, columns more."""
    store, reader = parquet_store(tmp_path)
    rows = some_rows(50)
    store.append(rows)
    store.close(0.0)
    for number, path in enumerate(sorted((tmp_path / "l").glob("day=*/*.parquet"))):
        table = pq.ParquetFile(path).read().replace_schema_metadata(None)
        table = table.set_column(
            1, "time", table["time"].cast(pa.timestamp("ns", tz="UTC"))
        ).append_column("extra", pa.array([1] * len(table)))
        table = table.set_column(3, "type", table["type"].dictionary_encode())
        pq.write_table(table, path.with_name(f"part-{number}.snappy.parquet"))
        path.unlink()

    tally = reader.tally(Query(max_failures=3))

    expected = expected_tally(rows, Query(max_failures=3))
    assert (tally.outcomes, tally.runs) == (expected.outcomes, expected.runs)
    assert ids(tally.failures) == ids(expected.failures)


def test_when_a_sqlite_file_is_not_ours_then_it_is_said(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "l.db")) as connection, connection:
        connection.execute("CREATE TABLE outcomes (day TEXT)")

    with pytest.raises(StorageFailed, match="another program's"):
        SqliteReader(tmp_path / "l.db").tally(Query())


def test_when_a_sqlite_ledger_is_read_then_a_writer_is_not_held_up(tmp_path: Path) -> None:
    store, reader = sqlite_store(tmp_path)
    store.append(some_rows(10))
    with closing(sqlite3.connect(tmp_path / "l.db", timeout=0)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM outcomes").fetchone()

        store.append(some_rows(10))

        assert reader.tally(Query()).row_count == 20
    store.close(0.0)


@pytest.mark.parametrize("seed", range(3))
def test_when_percentiles_are_told_then_they_are_within_one_per_cent(seed: int) -> None:
    chance = random.Random(seed)
    times = sorted(chance.lognormvariate(-3, 2) for _ in range(5_000))
    tally = LedgerTally()
    tally.count([(0, "Pay", "processed", None, run_s) for run_s in times], Query())

    p50, p95, p99, all_of_them = tally.percentiles_s("Pay", 0.5, 0.95, 0.99, 1.0)

    for found, share in ((p50, 0.5), (p95, 0.95), (p99, 0.99)):
        assert found == pytest.approx(times[round(share * 5_000) - 1], rel=0.0101)
    assert all_of_them <= times[-1]
    assert tally.longest_s == {"Pay": times[-1]}


def test_when_nothing_ran_then_percentiles_are_zero() -> None:
    assert LedgerTally().percentiles_s("Pay", 0.5) == [0.0]


def test_when_a_time_is_counted_then_its_bucket_stands_for_it() -> None:
    for run_s in (1e-6, 0.001, 0.5, 1.0, 3_600.0):
        assert middle_of(bucket_of(run_s)) == pytest.approx(run_s, rel=0.0101)
    assert bucket_of(0.0) == bucket_of(1e-9)


def test_when_buckets_are_counted_by_arrow_then_they_are_the_same(tmp_path: Path) -> None:
    rows = [a_row(run_s=1.0137**n * 1e-6) for n in range(1_500)]
    day = tmp_path / "day=2025-06-15"
    day.mkdir()
    write_rows([rows], day / "a.parquet")

    tally = ParquetReader(tmp_path).tally(Query())

    expected = Counter(("PlaceOrder", bucket_of(row.run_s or 0)) for row in rows)
    assert (tally.runs - expected).total() <= 2  # A logarithm may fall on either side of an edge.


def test_when_the_folder_of_a_day_disappears_then_that_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = parquet_store(tmp_path)
    store.append([a_row(time=5), a_row(time=5 * DAY_US)])
    store.close(0.0)
    found = parquet_ledger.days_in(tmp_path / "l")
    monkeypatch.setattr(parquet_ledger, "days_in", lambda folder: found)
    shutil.rmtree(tmp_path / "l" / "day=1970-01-01")

    tally = reader.tally(Query())

    assert (tally.row_count, tally.skipped) == (1, [])


def test_when_the_reader_may_not_write_then_it_reads_all_the_same(make: Make) -> None:
    """Another user's ledger: while it is written, and after it was closed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        store, reader = make(folder)
        store.append(some_rows(10))

        with read_only(folder):
            assert reader.tally(Query()).row_count == 10
        store.close(0.0)
        with read_only(folder):
            assert reader.tally(Query()).row_count == 10
            assert reader.tally(Query()).skipped == []


def test_when_a_file_is_large_then_it_is_read_in_parts(tmp_path: Path) -> None:
    """So that memory does not grow with the ledger."""
    day = tmp_path / "day=2025-06-15"
    day.mkdir()
    write_rows([some_rows(15_000)] * 10, day / "a.parquet")

    parts = [part.num_rows for part in parquet._tables(day / "a.parquet", ["time"], Query())]

    assert (sum(parts), max(parts)) == (150_000, 65_536)
    assert ParquetReader(tmp_path).tally(Query()).row_count == 150_000


def test_when_the_first_day_holds_nothing_of_ours_then_the_oldest_row_is_looked_for_further(
    tmp_path: Path,
) -> None:
    """Rows that wait in a journal are newer, and no reason to stop there."""
    store, reader = parquet_store(tmp_path)
    store.open()
    store.append([a_row(time=2 * DAY_US)])
    store.care(0.0)
    store.append([a_row(time=3 * DAY_US)])
    (tmp_path / "l" / "day=1970-01-01").mkdir()

    assert reader.oldest_us() == 2 * DAY_US
    store.close(0.0)
