"""Durability: what the file says after the server went, however it went."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from gateways.sqs_server.engine import ReceiptProblem, SqsStore, open_store
from gateways.sqs_server.model import Attribute, NewMessage
from pump import headers
from pump.errors import StorageFailed, StorageFull
from pump.testing.virtual_clock import VirtualClock

from ...small_disk import SmallDisk
from .copies import copy_of
from .shop import Shop, redrive


async def crashed(shop: Shop, folder: Path) -> Shop:
    """A server on what is on disk at this moment, as if the first had been killed."""
    copy = await asyncio.to_thread(copy_of, folder)
    return await Shop.open(shop.clock, SqsStore(copy))


async def test_when_the_server_is_killed_then_what_it_confirmed_is_there(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T3, T4."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders", delay_s=3, tags={"team": "blue"})
    attributes = {"n": Attribute("Binary", b"\xff")}
    message = NewMessage(body="grüße", attributes=attributes, sender="AKIA", delay_s=0)
    [accepted] = await shop.engine.send(shop.queue, [message])
    await shop.send("deleted", delay_s=0)
    _, deleted = await shop.receive(visibility_s=600)
    await shop.delete(deleted)
    await clock.advance(1)

    again = await crashed(shop, tmp_path)
    queue = again.use("orders")

    assert queue.settings == shop.queue.settings
    await clock.advance(600)
    [got] = await again.receive()
    assert (got.id, got.body, got.sender) == (accepted.id, "grüße", "AKIA")
    assert got.attributes == attributes
    assert got.receive_count == 2, "what was received is counted"
    assert got.first_received_at_s < clock.time_s()
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_a_redrive_policy_looks_at_the_count_then_it_is_durable_at_once(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T5: also when every delivery kills the server."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 1))
    await shop.send("poison")
    assert await shop.bodies() == ["poison"]

    again = await crashed(shop, tmp_path)
    again.use("orders")
    await clock.advance(30)

    assert await again.bodies() == []
    again.use("dead")
    assert await again.bodies() == ["poison"]
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_it_dies_while_a_scope_changes_then_no_duplicate_comes_of_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T3: what was sent before keeps its scope; what is sent now has the new one."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders.fifo")
    per_group = attrs.evolve(shop.queue.settings, deduplicates_per_group=True)
    await shop.engine.configure(shop.queue, per_group)
    [before] = await shop.send_fifo("1", group="a")

    again = await crashed(shop, tmp_path)
    again.use("orders.fifo")

    assert await again.send_fifo("1", group="b") == [before]
    assert await again.send_fifo("2", group="a") != await again.send_fifo("2", group="b")
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_started_again_then_a_dead_letter_remembers_how_often_it_was_received(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 2))
    await shop.send("poison")
    for _ in range(3):
        await shop.receive(visibility_s=0)
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(tmp_path))
    again.use("dead")

    assert [each.receive_count for each in await again.receive()] == [3]
    await again.engine.aclose()


async def test_when_started_again_then_delays_duplicates_and_numbers_go_on(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """R10, T4."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders.fifo")
    [first] = await shop.send_fifo("1")
    await shop.delete(*await shop.receive())
    await shop.make("late")
    await shop.send("later", delay_s=60)
    await shop.engine.aclose()
    await clock.advance(30)

    again = await Shop.open(clock, SqsStore(tmp_path))
    again.use("late")
    assert again.counts() == (0, 0, 1)
    await clock.advance(30)
    assert await again.bodies() == ["later"]
    again.use("orders.fifo")
    assert await again.send_fifo("1") == [first], "within five minutes, though it is deleted"
    [second] = await again.send_fifo("2")
    assert second.sequence_number is not None
    assert first.sequence_number is not None
    assert second.sequence_number > first.sequence_number
    assert second.id != first.id
    await again.engine.aclose()


async def test_when_started_again_then_receipts_of_before_delete_from_standard_queues_only(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders.fifo")
    await shop.send_fifo("1")
    [fifo] = await shop.receive()
    await shop.make("orders")
    await shop.send("a", "b")
    a, b = await shop.receive()
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(tmp_path))
    again.use("orders")
    assert await again.delete(a) == [None]
    assert await again.change(b, 30) is None, "who still works on it may go on"
    assert await again.bodies() == []
    again.use("orders.fifo")
    assert await again.delete(fifo) == [ReceiptProblem.EXPIRED]
    await again.engine.aclose()


async def test_when_changed_then_settings_purges_and_deletions_are_durable(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    gone = await shop.make("gone")
    await shop.send("x")
    await shop.make("kept.fifo")
    await shop.send_fifo("1", "2")
    changed = attrs.evolve(shop.queue.settings, visibility_timeout_s=7, tags={"a": "b"})
    await shop.engine.configure(shop.queue, changed)
    await shop.engine.purge(shop.queue)
    await shop.engine.delete_queue(gone)

    again = await crashed(shop, tmp_path)

    assert [queue.settings for queue in again.engine.queues.values()] == [changed]
    again.use("kept.fifo")
    assert again.counts() == (0, 0, 0)
    await again.send_fifo("1")
    assert await again.bodies() == ["1"]
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_configured_while_being_deleted_then_a_queue_does_not_come_back(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    queue = await shop.make("orders")
    other = attrs.evolve(queue.settings, delay_s=9)
    deleting = asyncio.create_task(shop.engine.delete_queue(queue))
    configuring = asyncio.create_task(shop.engine.configure(queue, other))
    await asyncio.wait([deleting, configuring])
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(tmp_path))
    assert again.engine.queues == {}
    await again.engine.aclose()


async def test_when_a_queues_settings_are_unreadable_then_opening_says_what_to_do(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.engine.aclose()
    await asyncio.to_thread(spoil_settings, tmp_path / "sqs.db")

    with pytest.raises(StorageFailed, match="restore a copy"):
        await Shop.open(clock, SqsStore(tmp_path))


def spoil_settings(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE queues SET settings = x'ff00'")


async def test_when_a_message_outlives_its_queue_on_disk_then_it_is_forgotten(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders.fifo")
    queue = shop.queue
    deleting = asyncio.create_task(shop.engine.delete_queue(queue))
    sending = asyncio.create_task(shop.send_fifo("late"))
    await asyncio.wait([deleting, sending])
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(tmp_path))
    assert again.engine.queues == {}
    await again.make("orders.fifo")
    assert again.counts() == (0, 0, 0)
    await again.engine.aclose()


async def test_when_expired_while_the_server_was_down_then_a_message_is_gone(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("brief", retention_s=60)
    await shop.send("a")
    await shop.engine.aclose()
    await clock.advance(60)

    again = await Shop.open(clock, SqsStore(tmp_path))
    again.use("brief")
    assert again.counts()[0] == 0
    await again.engine.aclose()
    third = await Shop.open(clock, SqsStore(tmp_path))
    assert len(third.use("brief").state.records) == 0, "on disk too"
    await third.engine.aclose()


async def test_when_another_server_uses_the_folder_then_opening_says_so(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))

    with pytest.raises(StorageFailed, match="another server uses this folder; stop it"):
        await Shop.open(clock, SqsStore(tmp_path))

    await shop.engine.aclose()
    await shop.engine.aclose()
    again = await Shop.open(clock, SqsStore(tmp_path))
    await again.engine.aclose()


@pytest.mark.parametrize("content", [b"not a database" * 50, b"SQLite format 3\x00" + bytes(200)])
async def test_when_the_file_is_not_ours_then_it_stays_as_it_was(
    tmp_path: Path, clock: VirtualClock, content: bytes
) -> None:
    file = tmp_path / "sqs.db"
    await asyncio.to_thread(file.write_bytes, content)

    with pytest.raises(StorageFailed, match="move it away"):
        await Shop.open(clock, SqsStore(tmp_path))

    assert await asyncio.to_thread(file.read_bytes) == content


async def test_when_the_file_is_damaged_then_opening_says_so(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send(*("x" * 3000 for _ in range(50)))
    await shop.engine.aclose()
    file = tmp_path / "sqs.db"
    whole = await asyncio.to_thread(file.read_bytes)
    await asyncio.to_thread(file.write_bytes, whole[:8192] + b"\xaa" * (len(whole) - 8192))

    with pytest.raises(StorageFailed, match=r"sqs\.db"):
        await Shop.open(clock, SqsStore(tmp_path))


async def send_until_refused(shop: Shop) -> None:
    while True:
        await shop.send("x" * 10_000)


async def test_when_the_disk_is_full_then_sends_fail_and_go_on_when_there_is_room(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path, max_bytes=200_000))
    await shop.make("orders")
    with pytest.raises(StorageFailed, match="free some disk space"):
        await send_until_refused(shop)
    count = len(shop.queue.state.records)
    assert count > 5

    await shop.delete(*await shop.receive(5))
    await shop.send("y" * 10_000)

    assert shop.counts() == (count - 4, 0, 0)
    await shop.engine.aclose()


async def test_when_there_is_no_folder_then_nothing_is_kept(clock: VirtualClock) -> None:
    shop = await Shop.open(clock, open_store(None))
    await shop.make("orders")
    await shop.send("a")

    assert await shop.bodies() == ["a"]
    await shop.engine.aclose()


async def test_when_a_store_is_made_for_a_folder_then_it_is_kept_there(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    assert isinstance(store, SqsStore)
    assert store.path == tmp_path / "sqs.db"


async def test_when_the_queue_is_nearly_full_then_consumers_still_dig_themselves_out(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """R51: sends stop while there is room for what receives and deletions write."""
    shop = await Shop.open(clock, SqsStore(tmp_path, max_bytes=400_000))
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 5))
    with pytest.raises(StorageFull, match="sends go on by themselves"):
        await send_until_refused(shop)
    sent = len(shop.queue.state.records)
    rejected = {headers.REJECTION_REASON: Attribute("String", "DeliveryError")}
    await shop.send("a dead letter", attributes=rejected)

    received = 0
    while messages := await shop.receive(1):
        received += len(messages)
        await shop.delete(*messages)

    assert 10 < sent == received - 1
    await shop.send("and on it goes")
    await shop.engine.aclose()


async def test_when_a_small_disk_was_full_then_sends_go_on_once_consumers_have_caught_up(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R51: the file does not shrink, and its log grows; neither may use the reserve up."""
    disk = SmallDisk(tmp_path, 2**21, monkeypatch)
    left = []
    for _ in range(2):
        shop = await Shop.open(clock, SqsStore(tmp_path))
        await shop.make("orders")
        with pytest.raises(StorageFull):
            await send_until_refused(shop)
        left.append(disk.left_bytes)
        while messages := await shop.receive(7):
            await shop.delete(*messages)
            left.append(disk.left_bytes)
        await shop.send("and on it goes")
        # Its log goes, and begins anew.
        await shop.engine.aclose()

    assert min(left) > 0
    assert len(left) > 20


async def test_when_the_disk_is_nearly_full_at_the_start_then_the_first_send_is_refused(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """R51."""
    shop = await Shop.open(clock, SqsStore(tmp_path, reserve_bytes=2**60))
    await shop.make("orders")

    with pytest.raises(StorageFull, match="kept for receives and acks"):
        await shop.send("a")

    await shop.engine.aclose()
