"""A process that writes a ledger, and says what is on the disk.

python -m tests.ledger.child_writer KIND PATH NAME COUNT

Writes COUNT rows (0: for ever) with ids NAME-0, NAME-1 …; each line it prints is the number of
rows that were confirmed. Parquet files are rolled after a few rows, so that much of its time is
spent with that.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

from pump.clock import SYSTEM_CLOCK
from pump.stores.ledger import ParquetLedger, SqliteLedger
from pump.stores.ledger.buffered_ledger import BufferedLedger, Buffering

from .support import an_outcome

BATCH = 20
_PATIENT = Buffering(close_within=timedelta(minutes=2))
"""Whoever comes after the dead rolls all that they left, on a disk that others use too."""


def build(kind: str, path: str) -> BufferedLedger:
    """The ledger, as both sides know it."""
    if kind == "sqlite":
        return SqliteLedger(path, buffering=_PATIENT)
    often = timedelta(milliseconds=50)
    return ParquetLedger(path, roll_rows=50, roll_every=often, buffering=_PATIENT)


async def main(kind: str, path: str, name: str, count: int) -> None:
    """Write, and say so."""
    ledger = build(kind, path)
    await ledger.open("memory", SYSTEM_CLOCK)
    number = 0
    while not count or number < count:
        for _ in range(BATCH):
            ledger.record(an_outcome(message_id=f"{name}-{number}"))
            number += 1
        await ledger.flush()
        # One write, so that a kill cannot tear it.
        os.write(1, f"{number}\n".encode())
    await ledger.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
