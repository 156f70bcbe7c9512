"""What is settled by hand, in a session too, is told as the pump tells it (R23, R24, R60, R61)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateways.memory import MemoryGateway
from pump import (
    App,
    Command,
    Consumer,
    DeferMessage,
    InvalidMessage,
    RejectMessage,
    Session,
    Subscription,
)
from pump.events import Event, OutcomeEvent
from pump.message import Delivery, Message
from pump.observability import vocabulary
from pump.observability.metrics import Metrics
from pump.stores.ledger import SqliteLedger
from pump.stores.spill import MemorySpill
from pump.testing import VirtualClock
from tests.ledger.support import sqlite_rows

LATER = timedelta(hours=1)
TASKS = ("work", "reject", "invalid", "defer")
"""In this order: what is put off ends a session's turn."""
COUNTED = (
    vocabulary.COMPLETED,
    vocabulary.RETRIED,
    vocabulary.REJECTED,
    vocabulary.MESSAGES_RECEIVED,
)


class Task(Command):
    name: str


class Desk:
    """An app that is watched in every way, with one task of each kind in its queue."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.events: list[Event] = []
        folder.mkdir()
        self.file = folder / "ledger.db"
        self.app = App(
            MemoryGateway(clock=self.clock),
            clock=self.clock,
            spill=MemorySpill(),
            telemetry=Metrics(),
            ledger=SqliteLedger(self.file),
            observers=[self.events.append],
        )
        self.app.register(Task, handle)
        self.subscription = self.app.subscribe(
            Subscription(
                queue="tasks", request=Task, dead_letter_queue="dead", invalid_queue="invalid"
            )
        )

    async def post(self) -> None:
        for name in TASKS:
            body = f'{{"name": "{name}"}}'.encode()
            message = Message(body=body, id=name, type="Task", group="g", correlation_id="c")
            await self.app.post(message, queue="tasks")


async def handle(task: Task) -> None:
    match task.name:
        case "defer":
            raise DeferMessage(LATER)
        case "reject":
            raise RejectMessage("no stock")
        case "invalid":
            raise InvalidMessage("no such thing")


async def settle(receiver: Consumer | Session, delivery: Delivery, name: str) -> None:
    match name:
        case "work":
            await receiver.ack(delivery)
        case "defer":
            await receiver.defer(delivery, LATER)
        case "reject":
            await receiver.reject(delivery, detail="no stock")
        case "invalid":
            await receiver.reject(delivery, "unacceptable", "no such thing")


async def pumped(desk: Desk) -> None:
    async with desk.app, desk.app.pumping():
        await desk.post()
        await desk.clock.settle()


async def by_hand(desk: Desk) -> None:
    async with desk.app, desk.app.consumer(desk.subscription) as consumer:
        await desk.post()
        for name in TASKS:
            [delivery] = await consumer.receive()
            await settle(consumer, delivery, name)


async def in_a_session(desk: Desk) -> None:
    async with desk.app, desk.app.consumer(desk.subscription) as consumer:
        await desk.post()
        async with await consumer.accept_session("g") as session:
            for name in TASKS:
                [delivery] = await session.receive()
                await settle(session, delivery, name)


async def told(work: Callable[[Desk], Awaitable[None]], folder: Path) -> dict[str, list[Any]]:
    """Everything that was told, without what differs from run to run."""
    desk = Desk(folder)
    with capture_logs() as lines:
        await work(desk)
    outcomes = [event for event in desk.events if isinstance(event, OutcomeEvent)]
    rows = await asyncio.to_thread(sqlite_rows, desk.file)
    return {
        "events": outcomes,
        "rows": [row._replace(time=0, pump="") for row in rows],
        "lines": [line for line in lines if line["event"] == vocabulary.MESSAGE_SETTLED],
        "counts": [desk.app.counters.value(name, queue="tasks") for name in COUNTED],
    }


@pytest.mark.parametrize("work", [by_hand, in_a_session])
async def test_when_settled_by_hand_then_all_are_told_what_the_pump_tells(
    work: Callable[[Desk], Awaitable[None]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R23, R24, R60, R61: observers, ledger, log and metrics, one line and one row each."""
    caplog.set_level("INFO", logger="pump")

    by_the_pump = await told(pumped, tmp_path / "pump")
    here = await told(work, tmp_path / "hand")

    assert here == by_the_pump
    assert [len(here[each]) for each in ("events", "rows", "lines")] == [4, 4, 4]
