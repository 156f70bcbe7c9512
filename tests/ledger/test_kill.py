"""What `kill -9` leaves: every file readable, no row twice, nothing lost that was confirmed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pump.clock import SYSTEM_CLOCK
from pump.stores.ledger.reading import ParquetReader
from pump.stores.ledger.tally import Query

from .child_writer import BATCH, build
from .support import ids, journal_rows, parquet_rows, sqlite_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


def start(kind: str, path: Path, name: str, count: int = 0) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "tests.ledger.child_writer", kind, str(path), name, str(count)]
    return subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def kill_after(child: subprocess.Popen[str], lines: int) -> int:
    """Kill it after it has said so many things; return how many rows it had confirmed."""
    assert child.stdout is not None
    for _ in range(lines):
        child.stdout.readline()
    child.kill()
    said = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    # Lines that were read above are in order, so the last one there is counts.
    return int(said[-1]) if said else lines * BATCH


async def recover(kind: str, path: Path) -> None:
    """What the next start does."""
    ledger = build(kind, str(path))
    await ledger.open("memory", SYSTEM_CLOCK)
    await ledger.aclose()


def check(rows: list[str], confirmed: dict[str, int], seed: int) -> None:
    assert [id_ for id_, count in Counter(rows).items() if count > 1] == [], f"seed {seed}"
    present = set(rows)
    for name, count in confirmed.items():
        missing = [n for n in range(count) if f"{name}-{n}" not in present]
        assert missing == [], f"{name}, seed {seed}"


def test_when_killed_while_rolling_then_nothing_confirmed_is_lost_and_nothing_doubled(
    tmp_path: Path,
) -> None:
    """R45: a roll every 50 rows or 50 ms, so that most kills come in the middle of one."""
    seed = random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    confirmed: dict[str, int] = {}
    for run in range(5):
        children = {f"r{run}{side}": start("parquet", tmp_path, f"r{run}{side}") for side in "ab"}
        for name, child in children.items():
            confirmed[name] = kill_after(child, chance.randrange(1, 25))
        # As the dead have left it: every file is whole, and the reader counts each row once.
        in_sight = {*ids(parquet_rows(tmp_path)), *ids(journal_rows(tmp_path))}
        tally = ParquetReader(tmp_path).tally(Query())
        assert tally.row_count == len(in_sight), f"run {run}, seed {seed}"
        assert tally.skipped == []

    asyncio.run(recover("parquet", tmp_path))

    assert journal_rows(tmp_path) == []
    check(ids(parquet_rows(tmp_path)), confirmed, seed)
    assert list((tmp_path / "_journal").iterdir()) == []


def test_when_killed_then_a_sqlite_ledger_has_lost_nothing_that_was_confirmed(
    tmp_path: Path,
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    path = tmp_path / "ledger.db"
    confirmed = {}
    for run in range(5):
        child = start("sqlite", path, f"r{run}")
        confirmed[f"r{run}"] = kill_after(child, chance.randrange(1, 60))

    check(ids(sqlite_rows(path)), confirmed, seed)


def test_when_read_while_it_is_written_and_rolled_then_no_row_is_missed_or_doubled(
    tmp_path: Path,
) -> None:
    """What was confirmed before a look is seen by it, and never more than was recorded."""
    # Bounded: each look takes as long as there are files, and a writer without an end is faster.
    child = start("parquet", tmp_path, "w", count=3_000)
    assert child.stdout is not None
    confirmed = 0
    try:
        for _ in range(25):
            confirmed = int(child.stdout.readline())
            tally = ParquetReader(tmp_path).tally(Query(max_failures=1))
            assert tally.row_count >= confirmed
            assert tally.skipped == []
    finally:
        said_since = kill_after(child, 0)
    # The writer may have had no turn since the last look, and has then said nothing more.
    total = max(confirmed, said_since)
    assert ParquetReader(tmp_path).tally(Query()).row_count <= total + BATCH
