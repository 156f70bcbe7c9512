"""The app that is measured, in a process of its own or in Spark tasks: the same one."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

from pump import App, Command, Subscription
from pump.stores.ledger import ParquetLedger
from pump.stores.spill import MemorySpill

QUEUE = "ticks"
REGION = "us-east-1"
HASHES = 10_000
"""About 5 ms. Hashing so little at a time never lets go of the interpreter's lock, so one process
can keep one core busy, and no more.
"""


class Tick(Command):
    """What is handled at once."""

    number: int


class Toil(Command):
    """What takes the processor some milliseconds."""

    number: int


async def tick(request: Tick) -> None:
    pass


def toil(request: Toil) -> None:
    digest = str(request.number).encode()
    for _ in range(HASHES):
        digest = hashlib.sha256(digest).digest()


WORK: dict[str, tuple[type[Tick | Toil], object]] = {"tick": (Tick, tick), "toil": (Toil, toil)}


def gateway_url(endpoint: str) -> str:
    """Where the queue is."""
    return f"sqs://{REGION}?endpoint={endpoint}"


def make_app(endpoint: str, work: str, ledger: Path | None = None) -> App:
    """One subscription with its defaults, but for the wait: nobody shall wait long for its end."""
    request, handler = WORK[work]
    kept = None if ledger is None else ParquetLedger(ledger)
    # A benchmark leaves no data folder behind.
    app = App(gateway_url(endpoint), spill=MemorySpill(), ledger=kept)
    app.register(request, handler)  # type: ignore[arg-type]
    app.subscribe(
        Subscription(
            queue=QUEUE,
            request=request,
            dead_letter_queue=f"{QUEUE}-dead",
            wait=timedelta(seconds=1),
        )
    )
    return app
