"""Parquet stores as a writer's thread uses them, without the ledger in front."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pump.stores.ledger.parquet_ledger import ParquetStore, RollOptions
from pump.stores.ledger.rows import Row

from .support import a_row

DAY_S = 86_400


def store_in(folder: Path, **options: Any) -> ParquetStore:
    """A store that rolls when it is told to."""
    given = {"roll_rows": 100, "roll_every": timedelta(minutes=1), "keep": None, **options}
    return ParquetStore(folder, RollOptions(**given))


def rows(*numbers: int, **fields: Any) -> list[Row]:
    """Rows known by their numbers."""
    return [a_row(message_id=f"m-{number}", **fields) for number in numbers]


def abandon(store: ParquetStore) -> None:
    """Leave things as a process does that was killed: only its lock is gone."""
    assert store._journal is not None
    store._journal.close()
    store._journal = None
