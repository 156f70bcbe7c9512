"""The local gateway's file: what survives, what is refused, what a full disk does."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from gateways.local import LocalGateway, from_url
from pump import headers
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, ConnectionFailed, StorageFailed
from pump.testing.virtual_clock import VirtualClock

from .conftest import OpenLocal
from .queue_user import QueueUser


def crash_image(folder: Path) -> Path:
    """What the disk would hold if every process died now."""
    image = folder.with_name(f"{folder.name}-image")
    image.mkdir()
    for name in ("queues.db", "queues.db-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, image / name)
    return image


async def fill(queue: QueueUser, sent: list[str]) -> None:
    for _ in range(100):
        sent += await queue.send(*("x" * 1000 for _ in range(10)))


async def test_when_everything_dies_then_what_was_acknowledged_is_there(
    open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    """T3, T4, R44, R45: sends, acks, attempts, delays, windows, from an unclosed file."""
    orders = await QueueUser(await open_local(clock)).create()
    await orders.send("acked", "deferred", "abandoned", "held", "new", correlation_id="c")
    acked, deferred, abandoned, _ = await orders.receive(4)
    await orders.ack(acked)
    await orders.defer(deferred, delay_s=60)
    await orders.abandon(abandoned)
    await orders.send("once", deduplication_id="k")

    again = QueueUser(await open_local(clock, crash_image(tmp_path)))
    await again.send("twice", deduplication_id="k")

    got = {d.message.body.decode(): d.attempt for d in await again.receive()}
    assert got == {"abandoned": 1, "held": 2, "new": 1, "once": 1}
    await clock.advance(60)
    by_body = {d.message.body: d for d in await again.receive()}
    assert by_body[b"deferred"].attempt == 2
    assert by_body[b"deferred"].message.correlation_id == "c"


async def test_when_the_last_delivery_was_on_its_way_out_then_a_restart_finishes_the_move(
    open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    """R20, T5: killed while holding the last delivery."""
    orders = QueueUser(await open_local(clock), max_receive_count=1, dead_letter_queue="dead")
    await orders.create()
    await orders.send("a")
    await orders.receive()

    again = await open_local(clock, crash_image(tmp_path))

    [letter] = await QueueUser(again, "dead").receive()
    assert letter.message.headers[headers.ATTEMPTS] == "1"


async def test_when_closed_and_opened_then_settings_and_order_are_the_same(
    open_local: OpenLocal, clock: VirtualClock
) -> None:
    first = await open_local(clock)
    orders = await QueueUser(first, ordering_guarantee=True).create()
    await orders.send("a", "b")
    await orders.receive()
    await first.aclose()

    orders = QueueUser(await open_local(clock))

    [a] = await orders.receive()
    assert (a.message.body, a.attempt) == (b"a", 2)
    assert await orders.bodies() == []
    await orders.ack(a)
    assert await orders.bodies() == ["b"]


async def test_when_a_message_is_gone_then_no_later_one_has_its_broker_id(
    open_local: OpenLocal, clock: VirtualClock
) -> None:
    """R67, T6: not after a restart either, or a copy would pass for the message itself."""
    gateway = await open_local(clock)
    orders = await QueueUser(gateway).create()
    await orders.send("1", "2")
    gone = await orders.receive()
    await orders.ack(*gone)
    await gateway.aclose()

    orders = QueueUser(await open_local(clock))
    await orders.send("3")

    [later] = await orders.receive()
    assert later.broker_id not in {each.broker_id for each in gone}


async def test_when_closing_is_cancelled_then_nobody_takes_over_a_file_that_is_being_written(
    open_local: OpenLocal, tmp_path: Path
) -> None:
    """T3, law 6: the cancellation comes through, once everything is written."""
    gateway = await open_local(SYSTEM_CLOCK)
    orders = await QueueUser(gateway).create()
    sending = [asyncio.create_task(orders.send(*map(str, range(100)))) for _ in range(50)]
    await asyncio.wait(sending, timeout=0)
    closing = asyncio.create_task(gateway.aclose())
    await asyncio.wait([closing], timeout=0)

    closing.cancel()
    await asyncio.wait([closing])

    assert closing.cancelled()
    # SQLite folds its log into the file when it closes it.
    assert not (tmp_path / "queues.db-wal").exists()
    sent = [message_id for task in sending for message_id in await task]
    orders = QueueUser(await open_local(SYSTEM_CLOCK))
    sent += await orders.send("last")
    assert [each.message.id for each in await orders.receive(10_000)] == sent


async def test_when_a_receive_is_cancelled_then_nothing_is_hidden_or_counted(
    open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    """R4: cancelled while its lease is on the way to the disk."""
    orders = await QueueUser(await open_local(clock)).create()
    await orders.send("a")
    receiving = asyncio.create_task(orders.receive())
    while not (await orders.stats()).in_flight:
        await asyncio.wait([receiving], timeout=0)
    receiving.cancel()
    await asyncio.wait([receiving])

    assert receiving.cancelled()
    [again] = await orders.receive(wait_s=5)
    assert again.attempt == 1


async def test_when_the_disk_is_full_then_the_send_fails_and_the_queue_goes_on(
    open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    """R51: nothing acknowledged is lost, nothing unacknowledged is delivered."""
    orders = await QueueUser(await open_local(clock, max_bytes=200_000)).create()
    sent: list[str] = []
    with pytest.raises(StorageFailed, match="free some disk space") as failure:
        await fill(orders, sent)

    assert "queues.db" in failure.value.path
    assert (await orders.stats()).visible == len(sent)
    held = await orders.receive(1000)
    assert [d.message.id for d in held] == sent
    assert await orders.ack(*held) == []
    [last] = await orders.send("last")
    assert [d.message.id for d in await orders.receive()] == [last]
    image = QueueUser(await open_local(clock, crash_image(tmp_path)))
    assert await image.bodies() == ["last"]


async def test_when_a_send_fails_then_its_deduplication_id_is_free_again(
    open_local: OpenLocal, clock: VirtualClock
) -> None:
    orders = await QueueUser(await open_local(clock, max_bytes=100_000)).create()
    with pytest.raises(StorageFailed):
        await orders.send("x" * 200_000, deduplication_id="k")

    await orders.send("small", deduplication_id="k")

    assert await orders.bodies() == ["small"]


def a_text(path: Path) -> None:
    path.write_text("dear diary " * 100)


def a_foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE diary (day TEXT)")
    connection.close()


def a_newer_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {0x50554D50}")
        connection.execute("PRAGMA user_version = 99")
        connection.execute("CREATE TABLE queues (name TEXT)")
    connection.close()


@pytest.mark.parametrize("make", [a_text, a_foreign_database, a_newer_database])
async def test_when_the_file_is_not_ours_then_it_is_named_and_left_alone(
    make: object, tmp_path: Path
) -> None:
    """R56."""
    path = tmp_path / "queues.db"
    assert callable(make)
    make(path)
    before = path.read_bytes()

    with pytest.raises(StorageFailed, match=r"queues\.db"):
        await LocalGateway(tmp_path).open()

    assert path.read_bytes() == before


async def test_when_the_file_is_damaged_then_it_is_named_and_left_alone(
    open_local: OpenLocal, tmp_path: Path
) -> None:
    first = await open_local(SYSTEM_CLOCK)
    orders = await QueueUser(first).create()
    await orders.send(*("x" * 500 for _ in range(100)))
    await first.aclose()
    path = tmp_path / "queues.db"
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xa5" * (len(damaged) - 4096)
    path.write_bytes(damaged)

    with pytest.raises(StorageFailed, match="damaged"):
        await LocalGateway(tmp_path).open()

    assert path.read_bytes() == damaged


async def test_when_the_folder_cannot_be_made_then_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StorageFailed, match="file"):
        await LocalGateway(tmp_path / "file" / "queues").open()


async def test_when_not_open_then_operations_say_so(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="not open"):
        await QueueUser(LocalGateway(tmp_path)).send("a")

    assert not (tmp_path / "queues.db").exists()


async def test_when_opened_from_a_url_then_the_folder_is_the_one_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R55."""
    monkeypatch.chdir(tmp_path)
    for url, folder in (
        ("local://some/queues", "some/queues"),
        (f"local://{tmp_path}/abs%20olute?max_bytes=100000", "abs olute"),
        ("local://", ".pumphouse/queues"),
    ):
        gateway = from_url(url)
        await gateway.open()
        await gateway.aclose()
        assert (tmp_path / folder / "queues.db").exists()


@pytest.mark.parametrize("url", ["local:x", "sqs://q", "local://q?what=1", "local://q?max_bytes=x"])
def test_when_a_url_makes_no_sense_then_it_is_refused(url: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="url"):
        from_url(url)


async def test_when_a_crash_kept_a_dead_message_from_moving_then_a_restart_moves_it(
    open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    """R20, T5: its last attempt is on disk, the move is not."""
    gateway = await open_local(clock)
    orders = await QueueUser(gateway).create()
    await orders.send("a")
    [a] = await orders.receive()
    await orders.defer(a, delay_s=60)
    await QueueUser(gateway, max_receive_count=1, dead_letter_queue="dead").create()

    again = await open_local(clock, crash_image(tmp_path))

    assert await QueueUser(again, "dead").bodies() == ["a"]
    assert (await QueueUser(again).stats()).delayed == 0


async def test_when_the_file_is_removed_while_in_use_then_nothing_is_confirmed_any_more(
    open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    """T3: what goes into a removed file is lost with the process."""
    orders = await QueueUser(await open_local(clock)).create()
    await orders.send("a")

    await asyncio.to_thread((tmp_path / "queues.db").unlink)

    with pytest.raises(StorageFailed, match="removed or replaced"):
        await orders.send("b")
