"""The child of the chaos test on `pump local`: a worker that notes what it does in a file.

python -m tests.kill.child_chaos_sqs URL FOLDER NAME uvloop|asyncio

Notes are single writes to a file of the child's own, so that a kill cannot tear one.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from handlers import OnceOnly, SqliteInbox
from pump import App, Command, Subscription, event_loop
from pump.clock import SYSTEM_CLOCK
from pump.context import Context, current_context
from pump.events import Event, OutcomeEvent, PumpStateEvent
from pump.loop.leases import LeaseBook
from pump.message import Delivery
from pump.pipeline import Proceed
from pump.subscription import retry

QUEUE = "steps.fifo"
LEASE = timedelta(seconds=5)
EFFECTS = """
CREATE TABLE IF NOT EXISTS effects (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, grp TEXT NOT NULL, n INTEGER NOT NULL
)
"""


class Step(Command):
    group: str
    n: int


class Notes:
    """`verb what seconds`, one a line."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, verb: str, what: str, at_s: float | None = None) -> None:
        when_s = SYSTEM_CLOCK.now_s() if at_s is None else at_s
        os.write(self._file, f"{verb} {what} {when_s!r}\n".encode())


def build(url: str, folder: Path, notes: Notes) -> App:
    """An app whose effects are in the transaction of the inbox."""
    inbox = SqliteInbox(folder / "inbox.db")
    checked_s: dict[str, float] = {}
    chance = random.Random()
    is_over = LeaseBook.is_over

    def noted(self: LeaseBook, delivery: Delivery, now_s: float) -> bool:
        checked_s[delivery.message.id] = now_s
        return is_over(self, delivery, now_s)

    # A process may have to wait for the processor after it has looked at the lease and before the
    # handler begins: what counts is when it looked.
    LeaseBook.is_over = noted  # type: ignore[method-assign]

    async def note_start(request: Any, context: Context, proceed: Proceed) -> Any:
        assert context.message is not None
        notes.add("start", context.message.id, checked_s.get(context.message.id))
        return await proceed(request)

    async def take(step: Step) -> None:
        context = current_context()
        assert context is not None
        assert context.message is not None
        await SYSTEM_CLOCK.sleep(chance.random() * 0.1)
        async with inbox.transaction() as connection:
            await connection.execute(EFFECTS)
            await connection.execute(
                "INSERT INTO effects (id, grp, n) VALUES (?, ?, ?)",
                (context.message.id, step.group, step.n),
            )

    def observe(event: Event) -> None:
        if isinstance(event, OutcomeEvent):
            notes.add(event.status.value, event.message_id)
        elif isinstance(event, PumpStateEvent):
            notes.add(event.state, event.detail.replace(" ", "_") or "?")

    app = App(url, middleware=[note_start, OnceOnly(inbox, lease=LEASE)], observers=[observe])
    app.register(Step, take)
    app.subscribe(
        Subscription(
            queue=QUEUE,
            request=Step,
            lease=LEASE,
            concurrency=4,
            failure=retry(None),
            dead_letter_queue="dead.fifo",
        )
    )
    return app


def main() -> None:
    url, folder, name, loop = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    run = event_loop.run if loop == "uvloop" else asyncio.run
    run(build(url, folder, Notes(folder, name)).serve())


if __name__ == "__main__":
    main()
