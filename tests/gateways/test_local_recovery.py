"""Recovery: at any quiet moment, the file says what memory says."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from gateways._engine.engine import QueueEngine
from gateways._engine.record import DELAYED, LEASED
from gateways._sqlite.database import Database
from gateways.local import LocalGateway
from gateways.local.journal import SCHEMA, SqliteJournal, recover
from pump.capabilities import OrderingMode
from pump.message import Message
from pump.outcome import ABANDON, ACK, Defer
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

from .queue_user import QueueUser

STEPS = st.one_of(
    st.tuples(
        st.just("send"),
        st.sampled_from([0.0, 0.0, 15.0]),
        st.sampled_from([None, "g"]),
        st.sampled_from([None, "k"]),
    ),
    st.tuples(st.just("receive"), st.integers(1, 4)),
    st.tuples(st.just("settle"), st.sampled_from([ACK, ABANDON, Defer(0.0), Defer(20.0)])),
    st.tuples(st.just("settle one"), st.sampled_from([ACK, ABANDON, Defer(20.0)])),
    st.tuples(st.just("extend"), st.sampled_from([1, 10]), st.sampled_from([5.0, 60.0])),
    st.tuples(st.just("pass"), st.sampled_from([6.0, 31.0])),
    st.tuples(st.just("purge"), st.just("dead")),
)


class Shop:
    """An engine on a file, and the receipts it gave out."""

    def __init__(self, engine: QueueEngine, clock: VirtualClock) -> None:
        self.engine = engine
        self.clock = clock
        self.receipts: list[str] = []

    async def take_step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("send", delay_s, group, key):
                message = Message(body=b"x", group=group, deduplication_id=key)
                await self.engine.send("orders", [message, Message(body=b"y")], delay_s=delay_s)
            case ("receive", count):
                got = await self.engine.receive(
                    "orders", max_count=count, wait_s=0, lease_s=30, owner="me", request=count
                )
                self.receipts += [delivery.receipt for delivery in got]
            case ("settle", action):
                receipts, self.receipts = self.receipts, []
                await self.engine.settle("orders", receipts, [action] * len(receipts))
            case ("settle one", action):
                receipts, self.receipts = self.receipts[:1], self.receipts[1:]
                await self.engine.settle("orders", receipts, [action] * len(receipts))
            case ("extend", count, lease_s):
                await self.engine.extend("orders", self.receipts[:count], lease_s=lease_s)
            case ("pass", seconds):
                await self.clock.advance(seconds)
                await self.engine.queues()
                await self.clock.settle()
            case ("purge", queue):
                await self.engine.purge(queue)


def picture(engine: QueueEngine) -> dict[str, list[tuple[object, ...]]]:
    """Everything that matters about every message."""
    return {
        name: [
            (
                record.seq,
                record.message.id,
                dict(record.message.headers),
                record.attempt,
                record.phase,
                round(record.due_s, 3) if record.phase == DELAYED else None,
                record.receipt if record.phase == LEASED else "",
                round(record.batch.expires_s, 3) if record.phase == LEASED and record.batch else 0,
            )
            for record in waiters.state.records.values()
        ]
        for name, waiters in engine.waiters_by_queue.items()
    }


async def run(steps: list[tuple[Any, ...]], spec: QueueSpec, folder: Path) -> None:
    clock = VirtualClock()
    path = folder / "queues.db"
    database = await Database.open(path, SCHEMA)
    journal = SqliteJournal(database, clock)
    shop = Shop(QueueEngine(clock, journal), clock)
    journal.start()
    await shop.engine.ensure(QueueSpec(name="dead"), MakeChannels.CREATE)
    await shop.engine.ensure(spec, MakeChannels.CREATE)

    for step in steps:
        await shop.take_step(step)
    await clock.settle()
    image = await recovered_image(path, clock)

    assert picture(image) == picture(shop.engine)
    # Both hand out the same next.
    ours = await shop.engine.receive("orders", max_count=99, wait_s=0, lease_s=9)
    theirs = await image.receive("orders", max_count=99, wait_s=0, lease_s=9)
    assert [d.message.id for d in ours] == [d.message.id for d in theirs]
    shop.engine.close()
    image.close()
    await journal.aclose()
    await database.close()


async def recovered_image(path: Path, clock: VirtualClock) -> QueueEngine:
    database = await Database.open(await asyncio.to_thread(copy_of, path), SCHEMA)
    engine = QueueEngine(clock)
    await recover(engine, database)
    await engine.queues()
    await database.close()
    return engine


def copy_of(path: Path) -> Path:
    copy = path.with_name("copy.db")
    for suffix in ("", "-wal"):
        source = Path(f"{path}{suffix}")
        if source.exists():
            shutil.copy(source, f"{copy}{suffix}")
    return copy


@given(
    steps=st.lists(STEPS, max_size=15),
    order=st.sampled_from(["fifo", "lifo", "strict"]),
    limit=st.sampled_from([None, 2]),
)
@settings(max_examples=20)
def test_when_recovered_at_any_quiet_moment_then_memory_is_as_it_was(
    steps: list[tuple[Any, ...]], order: str, limit: int | None
) -> None:
    """R10, R44, T3, T4."""
    spec = QueueSpec(
        name="orders",
        ordering=OrderingMode.LIFO if order == "lifo" else OrderingMode.FIFO,
        ordering_guarantee=order == "strict",
        max_receive_count=limit,
        dead_letter_queue="dead",
    )
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(steps, spec, Path(folder)))


HOUR_S = 3600.0


async def on_a_folder(folder: Path, clock: VirtualClock) -> tuple[LocalGateway, QueueUser]:
    gateway = LocalGateway(folder, clock)
    await gateway.open()
    return gateway, await QueueUser(gateway).create()


@pytest.mark.parametrize("step_s", [-24 * HOUR_S, 24 * HOUR_S], ids=["back", "forward"])
@pytest.mark.parametrize("is_open", [True, False], ids=["while open", "while closed"])
async def test_when_the_wall_clock_is_set_then_delays_and_windows_are_what_they_were(
    step_s: float, is_open: bool, tmp_path: Path, clock: VirtualClock
) -> None:
    """R17, R44: as long as the machine runs, its monotonic clock decides."""
    gateway, orders = await on_a_folder(tmp_path, clock)
    await orders.send("sent late", delay_s=60)
    await orders.send("once", deduplication_id="k")
    await orders.send("deferred")
    _, deferred = await orders.receive()
    await orders.defer(deferred, delay_s=30)
    if is_open:
        clock.step_wall_clock(step_s)
        await orders.send("after", delay_s=90)
    await gateway.aclose()
    if not is_open:
        clock.step_wall_clock(step_s)

    gateway, orders = await on_a_folder(tmp_path, clock)
    await orders.send("twice", deduplication_id="k")

    [once] = await orders.receive()
    assert once.message.body == b"once"
    await orders.ack(once)
    await clock.advance(30)
    assert await orders.bodies() == ["deferred"]
    await clock.advance(30)
    assert "sent late" in await orders.bodies()
    await gateway.aclose()


async def test_when_the_machine_started_anew_with_its_clock_set_back_then_no_delay_grows(
    tmp_path: Path,
) -> None:
    """R17: a delay is at most what it was when it was asked for."""
    gateway, orders = await on_a_folder(tmp_path, VirtualClock())
    await orders.send("a", delay_s=60)
    await gateway.aclose()
    clock = VirtualClock()
    clock.step_wall_clock(-24 * HOUR_S)

    gateway, orders = await on_a_folder(tmp_path, clock)
    await clock.advance(60)

    assert await orders.bodies() == ["a"]
    await gateway.aclose()


async def test_when_the_clock_is_set_back_then_what_was_put_off_late_comes_no_later_than_asked(
    tmp_path: Path,
) -> None:
    """R17, T4: a deferral of seconds is none of days, though its message is days old; nor is a
    window.
    """
    clock = VirtualClock()
    gateway, orders = await on_a_folder(tmp_path, clock)
    await orders.send("a")
    await clock.advance(240 * HOUR_S)
    await orders.send("once", deduplication_id="k")
    [late, once] = await orders.receive()
    await orders.defer(late, delay_s=30)
    await orders.ack(once)
    await gateway.aclose()

    for _ in range(2):
        # The machine starts anew, ten days back, and then again before anything was written.
        clock = VirtualClock()
        gateway, orders = await on_a_folder(tmp_path, clock)
        assert await orders.bodies() == []
        await gateway.aclose()
    gateway, orders = await on_a_folder(tmp_path, clock)
    await clock.advance(31)
    assert await orders.bodies() == ["a"]
    await clock.advance(300)
    await orders.send("twice", deduplication_id="k")
    assert "twice" in await orders.bodies()
    await gateway.aclose()


async def test_when_an_older_release_wrote_the_file_then_its_times_are_read_by_the_wall_clock(
    tmp_path: Path,
) -> None:
    gateway, orders = await on_a_folder(tmp_path, VirtualClock())
    await orders.send("a", delay_s=60)
    await gateway.aclose()
    with closing(sqlite3.connect(tmp_path / "queues.db")) as database:
        database.execute("DROP TABLE clock")
    clock = VirtualClock()
    clock.step_wall_clock(20)

    gateway, orders = await on_a_folder(tmp_path, clock)
    await clock.advance(40)

    assert await orders.bodies() == ["a"]
    await gateway.aclose()
