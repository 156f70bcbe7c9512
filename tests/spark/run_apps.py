"""The app of the tests of runs: light to import, since every Python worker of Spark's does."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from pump import App, Command, RejectMessage, Subscription

HEAVY = 1_000_000


class Parcel(Command):
    """What is sent in these tests."""

    number: int


def an_app(url: str, queue: str, folder: Path, **subscription: Any) -> App:
    """An app that nobody can import: it travels by value, its handler too.

    The handler leaves a line for each parcel it is given, and refuses every tenth. A parcel below
    zero kills its process, one from `HEAVY` on is never done.
    """
    app = App(url)
    notes = str(folder / "handled")

    @app.handler
    async def deliver(parcel: Parcel) -> None:
        line = f"{parcel.number} {os.getpid()}\n".encode()
        file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line)
        os.close(file)
        if parcel.number < 0:
            os._exit(9)
        if parcel.number >= HEAVY:
            await asyncio.Event().wait()
        if parcel.number % 10 == 9:
            raise RejectMessage("too heavy")

    app.subscribe(
        Subscription(
            queue=queue,
            request=Parcel,
            dead_letter_queue=f"{queue}-dead",
            wait=timedelta(seconds=1),
            **subscription,
        )
    )
    return app
