"""The local gateway's file: what survives, what is refused, what a full disk does."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from gateways._sqlite.database import Database, _GroupConnection
from gateways.local import LocalGateway, codec, from_url
from gateways.local.journal import SCHEMA
from pump import App, headers
from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import ConfigurationError, ConnectionFailed, StorageFailed, StorageFull
from pump.message import Message
from pump.subscription import Subscription
from pump.testing.virtual_clock import VirtualClock

from ..small_disk import SmallDisk
from .conftest import OpenLocal
from .queue_user import QueueUser
from .work import Job


def crash_image(folder: Path) -> Path:
    """What the disk would hold if every process died now."""
    image = folder.with_name(f"{folder.name}-image")
    image.mkdir()
    for name in ("queues.db", "queues.db-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, image / name)
    return image


async def fill(queue: QueueUser, sent: list[str], count: int = 100) -> None:
    for _ in range(count):
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


async def test_when_opening_is_cancelled_then_the_file_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[sqlite3.Connection] = []

    class Watched(_GroupConnection):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr("gateways._sqlite.database._GroupConnection", Watched)
    opening = asyncio.create_task(Database.open(tmp_path / "queues.db", SCHEMA))
    await yield_to_loop()

    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert len(closed) == 1


async def test_when_reading_is_cancelled_then_it_ends_before_the_file_can_be_closed(
    tmp_path: Path,
) -> None:
    """SQLite would read from what is no longer there, and the process crash."""
    database = await Database.open(tmp_path / "queues.db", SCHEMA)
    may_end, has_ended = threading.Event(), threading.Event()

    def read(_: sqlite3.Connection) -> None:
        may_end.wait(10)
        has_ended.set()

    reading = asyncio.create_task(database.read(read))
    await yield_to_loop()

    reading.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await reading
    had_ended = has_ended.is_set()
    await database.close()

    assert had_ended


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


def damage(folder: Path, sql: str) -> None:
    with closing(sqlite3.connect(folder / "queues.db")) as database, database:
        assert database.execute(sql).rowcount == 1


@pytest.mark.parametrize(
    ("sql", "is_readable"),
    [
        # The third digit of the order's number, and a whole row of rubbish.
        (
            "UPDATE messages SET packed = CAST(replace(packed, x'37313233', x'37313333') AS BLOB)"
            " WHERE seq = 2",
            True,
        ),
        ("UPDATE messages SET packed = x'c1' WHERE seq = 2", False),
    ],
    ids=["a flipped bit", "rubbish"],
)
async def test_when_a_stored_message_has_changed_then_it_is_routed_and_never_handled(
    sql: str, is_readable: bool, open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    """Law 4, R26: bit rot is found by the checksum of the send, and has a reason of its own."""
    gateway = await open_local(clock)
    jobs = await QueueUser(gateway, "jobs", invalid_queue="invalid").create()
    await jobs.send(*(f'{{"number": {number}}}' for number in (7122, 7123, 7124)), type="Job")
    await gateway.aclose()
    await asyncio.to_thread(damage, tmp_path, sql)
    handled: list[int] = []

    app = App(LocalGateway(tmp_path, clock), clock=clock)
    app.register(Job, lambda job: handled.append(job.number))
    app.subscribe(Subscription(queue="jobs", request=Job, invalid_queue="invalid"))
    async with app:
        dispatcher = app.dispatcher()
        running = asyncio.create_task(dispatcher.run())
        await clock.settle()
        dispatcher.drain()
        await running

    assert sorted(handled) == [7122, 7124]
    [invalid] = await QueueUser(await open_local(clock), "invalid").receive()
    assert invalid.message.headers[headers.REJECTION_REASON] == "Corrupted"
    assert (invalid.message.body == b'{"number": 7133}') == is_readable


def test_when_any_bit_of_a_stored_message_flips_then_it_is_noticed() -> None:
    """All but those of the checksum's own frame, which change nothing that was sent."""
    message = Message(body=b'{"order": 1}', type="Order", group="g", headers={"k": "v"})
    stored = codec.pack_checked(message)
    for position, bit in product(range(len(stored)), range(8)):
        flipped = bytearray(stored)
        flipped[position] ^= 1 << bit

        found = codec.unpack_checked(bytes(flipped), seq=7)

        assert headers.CORRUPTED in found.headers or found == message


def test_when_a_message_was_stored_by_another_release_then_each_reads_the_others() -> None:
    message = Message(body=b"a", headers={"k": "v"})

    assert codec.unpack(codec.pack_checked(message)) == message
    assert codec.unpack_checked(codec.pack(message), seq=7) == message


async def test_when_the_queue_is_full_then_consumers_still_dig_themselves_out(
    open_local: OpenLocal, clock: VirtualClock
) -> None:
    """R51: sends stop while there is room for what receives and acks write."""
    host = await open_local(clock, max_bytes=300_000)
    client = await open_local(clock)
    here, there = await QueueUser(host).create(), QueueUser(client)
    sent: list[str] = []
    with pytest.raises(StorageFull, match="free some disk space"):
        await fill(there, sent)
    with pytest.raises(StorageFull, match="sends go on by themselves"):
        await here.send(*("x" * 1000 for _ in range(10)))

    acked: list[str] = []
    while deliveries := await there.receive(1):
        acked += [each.message.id for each in deliveries]
        assert await there.consumer.extend(deliveries, lease_s=60) == []
        assert await there.ack(*deliveries) == []

    assert acked == sent
    await here.send("and on it goes")


async def test_when_a_small_disk_was_full_then_sends_go_on_once_consumers_have_caught_up(
    open_local: OpenLocal,
    clock: VirtualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R51: the file does not shrink, and its log grows; neither may use the reserve up."""
    disk = SmallDisk(tmp_path, 2**21, monkeypatch)
    left = []
    for _ in range(2):
        orders = await QueueUser(await open_local(clock)).create()
        with pytest.raises(StorageFull):
            await fill(orders, [], count=10**6)
        left.append(disk.left_bytes)
        while deliveries := await orders.receive(20):
            await orders.ack(*deliveries)
            left.append(disk.left_bytes)
        await orders.send("and on it goes")
        # Its log goes, and begins anew.
        await orders.gateway.aclose()

    assert min(left) > 0
    assert len(left) > 20


async def test_when_the_disk_is_nearly_full_then_only_dead_letters_are_sent(
    open_local: OpenLocal, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R51, T1: what was rejected must get out of the way; the rest waits for room."""
    free, real = [2**30], os.statvfs

    def statvfs(path: Path) -> os.statvfs_result:
        found = list(real(path))
        found[0], found[1], found[4] = 4096, 4096, free[0] // 4096
        found[2] = 2**30 // 4096
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", statvfs)
    orders = await QueueUser(await open_local(clock)).create()
    await orders.send("a")

    free[0] = 12 * 2**20
    # What is known is what the last write has found.
    await orders.send("b")
    with pytest.raises(StorageFull, match="12582912 bytes are left"):
        await orders.send("c")
    await orders.send("dead", headers={headers.REJECTION_REASON: "DeliveryError"})
    free[0] = 2**30

    await orders.send("d")
    assert await orders.bodies() == ["a", "b", "dead", "d"]


async def test_when_nothing_is_to_be_kept_then_the_disk_is_used_up(
    open_local: OpenLocal, clock: VirtualClock, tmp_path: Path
) -> None:
    gateway = from_url(f"local://{tmp_path}?max_bytes=200000&reserve_bytes=0", clock)
    await gateway.open()
    orders, sent = await QueueUser(gateway).create(), list[str]()
    with pytest.raises(StorageFailed) as full:
        await fill(orders, sent)

    assert type(full.value) is StorageFailed
    await gateway.aclose()
