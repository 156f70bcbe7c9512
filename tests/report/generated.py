"""A ledger whose numbers are known, for both engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pump.stores.ledger.parquet import SCHEMA, write_rows
from pump.stores.ledger.parquet_ledger import ParquetStore, RollOptions
from pump.stores.ledger.rows import Row
from tests.ledger.support import a_row

START_US = 1_750_000_000_000_000
HOUR_US = 3_600_000_000
MINUTE_US = 60_000_000
_OPTIONS = RollOptions(roll_rows=100_000, roll_every=timedelta(hours=1), keep=None)
_TEXTS = (
    "TimeoutError: no answer from https://pay.example/{n} within {n} s",
    "ValueError: order {n} has no customer 'c-{n}'",
    'KeyError: "item-{n}" in /srv/shop/v{n}/stock.py',
    "OSError: müde · größe {n} 🙂 <b>{n}</b> </script>",
)


def ordinary(count: int = 2_000, seed: int = 7) -> list[Row]:
    """Messages that are processed, fail and come again, over two days."""
    chance = random.Random(seed)
    return [row for number in range(count) for row in _life(number, chance)]


def _life(number: int, chance: random.Random) -> Iterator[Row]:
    type_ = ("PlaceOrder", "Pay", "Ship", "", "Zahlung ü")[number % 5]
    queue = ("orders", "payments")[number % 2]
    time = START_US + round(chance.random() * 48 * HOUR_US)
    age_s = chance.uniform(-0.5, 400.0)
    for attempt in range(1, 5):
        is_last = attempt == 4
        fails = chance.random() < 0.25
        status = "processed" if not fails else "dead-lettered" if is_last else "retrying"
        if fails and not is_last and chance.random() < 0.1:
            status = "lease-lost"
        yield _row(number, attempt, type_, queue, status, time, age_s, chance)
        if not fails:
            return
        time += round(chance.random() * MINUTE_US) + 1
        age_s += 30.0


def _row(
    number: int,
    attempt: int,
    type_: str,
    queue: str,
    status: str,
    time: int,
    age_s: float,
    chance: random.Random,
) -> Row:
    is_lost = status == "lease-lost"
    has_error = status in ("retrying", "dead-lettered")
    text = _TEXTS[number % len(_TEXTS)].format(n=chance.randrange(10**9))
    return a_row(
        time=time,
        message_id=f"m-{number}",
        type="" if is_lost else type_,
        queue=queue,
        subscription=queue,
        status=status,
        attempts=attempt,
        reason="DeliveryError" if status == "dead-lettered" else None,
        error_type=text.partition(":")[0] if has_error else None,
        detail=text if has_error else None,
        destination="dead" if status == "dead-lettered" else None,
        run_s=None if is_lost else chance.lognormvariate(-3, 2),
        age_s=None if is_lost else age_s,
    )


def repeated() -> list[Row]:
    """Rows that tell of one delivery twice, and messages that lived twice."""
    late = {"time": START_US + 50 * HOUR_US}
    rows = [
        # Written twice, word by word.
        a_row(message_id="copy", **late),
        a_row(message_id="copy", **late),
        # The lease was lost after the outcome had been written: the latest wins.
        a_row(message_id="lost", **late),
        a_row(message_id="lost", type="", status="lease-lost", run_s=None, time=late["time"] + 5),
    ]
    # Twice through all attempts: sent again by means that leave no row.
    for life, start in enumerate((late["time"], late["time"] + HOUR_US)):
        rows += _three_attempts("twice", start + life)
    # Rejected at once, sent again with a row, rejected again.
    for start in (late["time"], late["time"] + HOUR_US):
        rows.append(_rejected("again", 1, start))
    rows.append(
        a_row(
            message_id="again",
            status="redriven",
            queue="dead",
            subscription="",
            time=late["time"] + MINUTE_US,
            destination="orders",
            run_s=None,
        )
    )
    return rows


def _three_attempts(message_id: str, start: int) -> list[Row]:
    tried = [
        a_row(
            message_id=message_id,
            status="retrying",
            attempts=attempt,
            error_type="ValueError",
            detail=f"ValueError: poisoned {attempt}",
            time=start + attempt * MINUTE_US,
        )
        for attempt in (1, 2)
    ]
    return [*tried, _rejected(message_id, 3, start + 3 * MINUTE_US)]


def _rejected(message_id: str, attempts: int, time: int) -> Row:
    return a_row(
        message_id=message_id,
        status="dead-lettered",
        attempts=attempts,
        reason="Unacceptable",
        error_type="ValueError",
        detail=f"ValueError: poisoned {attempts}",
        destination="dead",
        time=time,
    )


REPEATED_DELIVERIES = 1 + 1 + 6 + 2
"""What the rows of `repeated` come to, but for the one that is `redriven`."""


def write_ledger(folder: Path, rows: list[Row], *, waiting: list[Row] | None = None) -> Path:
    """A Parquet ledger; rows that wait stay in the journal of a process that died."""
    store = ParquetStore(folder, _OPTIONS)
    store.append(rows)
    store.close(0.0)
    if waiting:
        dead = ParquetStore(folder, _OPTIONS)
        dead.append(waiting)
        # A process that is killed lets go of its lock, and of nothing else.
        assert dead._journal is not None
        dead._journal.close()
    return folder


def write_joined(path: Path, rows: list[Row]) -> None:
    """A file that another job might have made of ours: other widths, zones and encodings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows([rows], path)
    table = pq.ParquetFile(path).read()
    changed = {
        "time": pa.timestamp("ns"),
        "attempts": pa.int64(),
        "type": pa.dictionary(pa.int32(), pa.string()),
        "detail": pa.large_string(),
    }
    for name, kind in changed.items():
        at = SCHEMA.get_field_index(name)
        table = table.set_column(at, name, table[name].cast(kind))
    pq.write_table(table.append_column("extra", pa.array([1] * len(rows))), path)
