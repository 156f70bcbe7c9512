"""Where a report begins: what is older than that is not in it."""

from __future__ import annotations

from pathlib import Path

from pump.stores.ledger.reading import ParquetReader

from .parquet_stores import abandon, store_in
from .support import a_row


def test_when_a_clock_was_set_back_then_the_oldest_row_is_known_while_it_waits(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path)
    store.append([a_row(time=9), a_row(time=8)])
    store.append([a_row(time=7)])

    assert ParquetReader(tmp_path).oldest_us() == 7

    store.close(0.0)


def test_when_a_journal_is_damaged_then_the_oldest_row_of_the_others_is_known(
    tmp_path: Path,
) -> None:
    """One journal that cannot be read does not keep a report from what can be."""
    dead, alive = store_in(tmp_path), store_in(tmp_path)
    dead.append([a_row(time=5)])
    assert dead._journal is not None
    dead._journal._connection.execute("UPDATE batches SET rows = x'c1'")
    abandon(dead)
    alive.append([a_row(time=7)])

    assert ParquetReader(tmp_path).oldest_us() == 7

    alive.close(0.0)
