"""Corruption: a message that has changed on the disk is never served as what was sent."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateways.sqs_server.engine import SqsStore
from gateways.sqs_server.engine.record import pack_extra
from gateways.sqs_server.model import Attribute, NewMessage
from pump.testing.virtual_clock import VirtualClock

from .shop import Shop, redrive

BODY = "charge 100 EUR"


def change(folder: Path, sql: str) -> None:
    """What rot would do, and by a way that SQLite does not notice."""
    with closing(sqlite3.connect(folder / "sqs.db")) as connection:
        connection.execute(sql)
        connection.commit()


def flip(folder: Path, before: bytes, after: bytes) -> None:
    """Change bytes of the file itself."""
    path = folder / "sqs.db"
    data = path.read_bytes()
    assert data.count(before) == 1
    path.write_bytes(data.replace(before, after))


async def stopped_with(tmp_path: Path, clock: VirtualClock, **queue: object) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("dead")
    await shop.make("orders", **queue)
    message = NewMessage(body=BODY, attributes={"currency": Attribute("String", "pounds")})
    await shop.engine.send(shop.queue, [message, NewMessage(body="sound")])
    await shop.engine.aclose()


ROTS: dict[str, Callable[[Path], None]] = {
    "a digit of the body": lambda folder: flip(folder, b"charge 100", b"charge 900"),
    "a byte that is no text": lambda folder: flip(folder, b"charge 100", b"charge \xb100"),
    "an attribute": lambda folder: flip(folder, b"pounds", b"rounds"),
    "the packing": lambda folder: flip(folder, b"\xa8currency", b"\xc1currency"),
    "the queue": lambda folder: change(folder, "UPDATE messages SET queue = 1 WHERE seq = 3"),
    "a queue that is not": lambda folder: change(
        folder, "UPDATE messages SET queue = 77 WHERE seq = 3"
    ),
    "the time": lambda folder: change(folder, "UPDATE messages SET sent_s = 1.0 WHERE seq = 3"),
}


@pytest.mark.parametrize("rot", ROTS)
async def test_when_a_stored_message_has_changed_then_it_is_set_aside_and_never_served(
    tmp_path: Path, clock: VirtualClock, rot: str
) -> None:
    """T3: and the others are served as ever."""
    await stopped_with(tmp_path, clock)
    await asyncio.to_thread(ROTS[rot], tmp_path)

    with capture_logs() as logs:
        shop = await Shop.open(clock, SqsStore(tmp_path))
    shop.use("orders")
    bodies = await shop.bodies()
    shop.use("dead")
    bodies += await shop.bodies()
    await shop.engine.aclose()

    assert bodies == ["sound"]
    [error] = [each for each in logs if each["event"] == "message.corrupted"]
    assert error["log_level"] == "error"
    assert error["destination"] == "table corrupted"
    with closing(sqlite3.connect(tmp_path / "sqs.db")) as connection:
        [(message_id, body)] = connection.execute("SELECT message_id, body FROM corrupted")
    assert message_id == error["message_id"]
    assert body.startswith(b"charge ")


@pytest.mark.parametrize("rot", ["a digit of the body", "a byte that is no text", "the packing"])
async def test_when_there_is_a_dead_letter_queue_then_it_goes_there_with_its_reason(
    tmp_path: Path, clock: VirtualClock, rot: str
) -> None:
    """R28: under Brighter's names, as native attributes; also after another restart."""
    await stopped_with(tmp_path, clock, redrive=redrive("dead", 5))
    await asyncio.to_thread(ROTS[rot], tmp_path)

    shop = await Shop.open(clock, SqsStore(tmp_path))
    shop.use("orders")
    assert await shop.bodies() == ["sound"]
    await clock.settle()
    await shop.engine.aclose()
    again = await Shop.open(clock, SqsStore(tmp_path))
    again.use("dead")
    [dead] = await again.receive()

    assert dead.attributes["rejectionReason"].value == "Corrupted"
    assert dead.attributes["originalTopic"].value == "orders"
    assert dead.body.startswith("charge ")
    assert dead.dead_letter_source is not None
    await again.engine.aclose()


async def test_when_the_head_of_a_fifo_group_has_changed_then_the_group_goes_on_without_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("dead.fifo")
    await shop.make("orders.fifo", redrive=redrive("dead.fifo", 5))
    await shop.send_fifo(BODY, "next")
    await shop.engine.aclose()
    with closing(sqlite3.connect(tmp_path / "sqs.db")) as connection:
        connection.execute("UPDATE messages SET body = 'x' WHERE body = ?", (BODY,))
        connection.commit()

    again = await Shop.open(clock, SqsStore(tmp_path))
    again.use("orders.fifo")

    assert (await again.receive(wait_s=5))[0].body == "next"
    again.use("dead.fifo")
    assert await again.bodies() == ["x"]
    await again.engine.aclose()


async def test_when_an_older_release_wrote_the_file_then_its_messages_are_served(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """It wrote no checksums; what it wrote is read as it is."""
    await stopped_with(tmp_path, clock)
    old = pack_extra(NewMessage(body="", attributes={"n": Attribute("Number", "1")}))
    with closing(sqlite3.connect(tmp_path / "sqs.db")) as connection:
        connection.execute("UPDATE messages SET extra = NULL WHERE body = 'sound'")
        connection.execute("UPDATE messages SET extra = ? WHERE body = ?", (old, BODY))
        connection.commit()

    shop = await Shop.open(clock, SqsStore(tmp_path))
    shop.use("orders")
    first, second = await shop.receive()

    assert (first.body, first.attributes) == (BODY, {"n": Attribute("Number", "1")})
    assert second.body == "sound"
    await shop.engine.aclose()
