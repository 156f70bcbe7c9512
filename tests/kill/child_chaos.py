"""The child of the chaos test: a worker, or a sender, that notes what it does in a file.

python -m tests.kill.child_chaos FOLDER NAME work|send uvloop|asyncio

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
from pump.errors import GatewayError
from pump.events import Event, OutcomeEvent, PumpStateEvent
from pump.loop.leases import LeaseBook
from pump.message import Delivery, Message
from pump.pipeline import Proceed
from pump.ports import Gateway
from pump.subscription import MakeChannels, retry

GROUPS = 6
LEASE = timedelta(seconds=2)
EFFECTS = """
CREATE TABLE IF NOT EXISTS effects (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, grp TEXT NOT NULL, n INTEGER NOT NULL
)
"""


class Step(Command):
    group: str
    n: int


class Notes:
    """`verb id seconds`, one a line."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, verb: str, id_: str, at_s: float | None = None) -> None:
        when_s = SYSTEM_CLOCK.now_s() if at_s is None else at_s
        os.write(self._file, f"{verb} {id_} {when_s!r}\n".encode())


def subscription() -> Subscription:
    return Subscription(
        queue="steps",
        request=Step,
        lease=LEASE,
        concurrency=4,
        prefetch=12,
        failure=retry(None),
        dead_letter_queue="dead",
        invalid_queue="invalid",
    )


def build_worker(folder: Path, notes: Notes) -> App:
    """An app whose effects are in the transaction of the inbox."""
    inbox = SqliteInbox(folder / "inbox.db")
    checked_s: dict[str, float] = {}
    chance = random.Random()
    is_over = LeaseBook.is_over

    def noted(self: LeaseBook, delivery: Delivery, now_s: float) -> bool:
        checked_s[delivery.message.id] = now_s
        return is_over(self, delivery, now_s)

    # A process may be stopped after it has looked at the lease and before the handler begins:
    # what counts is when it looked.
    LeaseBook.is_over = noted  # type: ignore[method-assign]

    async def note_start(request: Any, context: Context, proceed: Proceed) -> Any:
        assert context.message is not None
        id_ = context.message.id
        notes.add("start", id_, checked_s.get(id_))
        return await proceed(request)

    async def take(step: Step) -> None:
        context = current_context()
        assert context is not None
        assert context.message is not None
        await SYSTEM_CLOCK.sleep(chance.random() * 0.05)
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

    app = App(
        f"local://{folder / 'queues'}",
        middleware=[note_start, OnceOnly(inbox, lease=LEASE)],
        observers=[observe],
    )
    app.register(Step, take)
    app.subscribe(subscription())
    return app


async def send(folder: Path, notes: Notes, first: int) -> None:
    """Send group after group, each in order, until killed; an id is used once only."""
    app = App(f"local://{folder / 'queues'}")
    async with app:
        gateway = app.gateway
        for spec in subscription().queue_specs():
            await gateway.admin().ensure(spec, MakeChannels.CREATE)
        producer = gateway.producer("steps")
        for n in range(first, 10**9):
            messages = [a_step(f"g{group}", n) for group in range(GROUPS)]
            messages += [a_step(f"u{lone}", n, is_grouped=False) for lone in range(GROUPS)]
            while n % 10 == 0 and await has_backlog(gateway):
                await SYSTEM_CLOCK.sleep(0.2)
            for message in messages:
                notes.add("sending", message.id)
            try:
                await producer.send(messages)
            except GatewayError as error:
                notes.add("refused", type(error).__name__)
                continue
            for message in messages:
                notes.add("sent", message.id)
            await SYSTEM_CLOCK.sleep(0.02)


async def has_backlog(gateway: Gateway) -> bool:
    """Workers always have some that wait, and are done soon after the last was sent."""
    try:
        return any(each.visible > 500 for each in await gateway.admin().queues())
    except GatewayError:
        return False


def a_step(group: str, n: int, *, is_grouped: bool = True) -> Message:
    body = f'{{"group": "{group}", "n": {n}}}'.encode()
    return Message(body=body, type="Step", id=f"{group}-{n}", group=group if is_grouped else None)


def main() -> None:
    folder, name, mode, loop = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    notes = Notes(folder, name)
    run = event_loop.run if loop == "uvloop" else asyncio.run
    if mode == "send":
        run(send(folder, notes, int(sys.argv[5])))
    else:
        run(build_worker(folder, notes).serve())


if __name__ == "__main__":
    main()
