"""Leases: what a client has in flight stays its own when the server is killed under it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateways.sqs_server.engine import ReceiptProblem, SqsStore, recovery
from pump.serving import KeptLeases
from pump.testing.virtual_clock import VirtualClock

from ...small_disk import SmallDisk
from .copies import copy_of
from .shop import Shop, redrive
from .test_clock_changes import WrongClock


async def crashed(shop: Shop, folder: Path, keeps: KeptLeases = KeptLeases.AFTER_CRASH) -> Shop:
    """A server on what is on disk at this moment, as if the first had been killed."""
    copy = await asyncio.to_thread(copy_of, folder)
    return await Shop.open(shop.clock, SqsStore(copy, keeps_leases=keeps))


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_when_the_server_is_killed_then_what_is_in_flight_stays_so_until_its_lease_ends(
    tmp_path: Path, clock: VirtualClock, suffix: str
) -> None:
    """R45, T4, T14: at once, before any count is on the disk."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make(f"orders{suffix}")
    await shop.send_fifo("held", "next") if suffix else await shop.send("held", "next")
    await shop.receive(1, visibility_s=30)

    again = await crashed(shop, tmp_path)
    again.use(f"orders{suffix}")

    # The group of a FIFO queue rests with its first message.
    assert await again.bodies(visibility_s=60) == ([] if suffix else ["next"])
    await clock.advance(29)
    assert await again.bodies() == []
    await clock.advance(1)
    got = await again.receive()
    assert (got[0].body, got[0].receive_count) == ("held", 2)
    await again.engine.aclose()
    await shop.engine.aclose()


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_when_the_server_was_killed_then_a_receipt_from_before_extends_and_deletes(
    tmp_path: Path, clock: VirtualClock, suffix: str
) -> None:
    """R45, T14; also a second crash later."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make(f"orders{suffix}")
    await shop.send_fifo("held") if suffix else await shop.send("held")
    [held] = await shop.receive(visibility_s=30)

    copy = await asyncio.to_thread(copy_of, tmp_path)
    again = await Shop.open(clock, SqsStore(copy))
    again.use(f"orders{suffix}")
    assert await again.change(held, 60) is None
    once_more = await crashed(again, copy)
    once_more.use(f"orders{suffix}")

    await clock.advance(59)
    assert await once_more.bodies() == []
    assert await once_more.delete(held) == [None]
    assert once_more.counts() == (0, 0, 0)
    for each in (once_more, again, shop):
        await each.engine.aclose()


async def test_when_a_message_was_received_again_after_a_crash_then_its_older_receipt_has_expired(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders.fifo")
    await shop.send_fifo("held")
    [held] = await shop.receive(visibility_s=30)

    again = await crashed(shop, tmp_path)
    again.use("orders.fifo")
    await clock.advance(30)
    [newer] = await again.receive()

    assert await again.delete(held) == [ReceiptProblem.EXPIRED]
    assert await again.delete(newer) == [None]
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_visibility_was_ended_before_the_crash_then_the_message_is_visible(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send("shown")
    [shown] = await shop.receive(visibility_s=600)
    await shop.change(shown, 0)

    again = await crashed(shop, tmp_path)
    again.use("orders")

    assert await again.bodies() == ["shown"]
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_the_last_delivery_is_in_flight_at_a_crash_then_it_is_dead_only_when_it_ends(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T5, T14: its consumer may still succeed."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 1))
    await shop.send("poison", "luck")
    _, luck = await shop.receive(visibility_s=30)

    again = await crashed(shop, tmp_path)
    again.use("orders")
    assert await again.bodies() == []
    assert await again.delete(luck) == [None]
    await clock.advance(30)

    assert await again.bodies() == []
    again.use("dead")
    assert await again.bodies() == ["poison"]
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_a_receiver_inside_the_server_dies_with_it_then_its_messages_are_visible(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T4: a function behind an event-source mapping is no living owner."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send("mapped")
    await shop.engine.receive(shop.queue, max_count=1, wait_s=0, visibility_s=600, is_inside=True)

    again = await crashed(shop, tmp_path)
    again.use("orders")

    assert await again.bodies() == ["mapped"]
    await again.engine.aclose()
    await shop.engine.aclose()


@pytest.mark.parametrize(
    ("keeps", "after_stop", "after_crash"),
    [
        (KeptLeases.AFTER_CRASH, ["held"], []),
        (KeptLeases.ALWAYS, [], []),
        (KeptLeases.NEVER, ["held"], ["held"]),
    ],
)
async def test_when_the_server_ends_then_the_option_says_what_stays_in_flight(
    tmp_path: Path,
    clock: VirtualClock,
    keeps: KeptLeases,
    after_stop: list[str],
    after_crash: list[str],
) -> None:
    """R45, T14."""
    shop = await Shop.open(clock, SqsStore(tmp_path, keeps_leases=keeps))
    await shop.make("orders")
    await shop.send("held")
    await shop.receive(visibility_s=600)
    copy = await crashed(shop, tmp_path, keeps)
    copy.use("orders")
    await shop.engine.aclose()
    again = await Shop.open(clock, SqsStore(tmp_path, keeps_leases=keeps))
    again.use("orders")

    assert await copy.bodies() == after_crash
    assert await again.bodies() == after_stop
    await copy.engine.aclose()
    await again.engine.aclose()


async def test_when_a_start_fails_after_a_crash_then_the_next_one_still_knows_the_leases(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send("held")
    await shop.receive(visibility_s=600)
    copy = await asyncio.to_thread(copy_of, tmp_path)
    failed = await Shop.open(clock, SqsStore(copy))
    await failed.engine.aclose(frees=False)

    again = await Shop.open(clock, SqsStore(copy))
    again.use("orders")

    assert await again.bodies() == []
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_many_leases_were_noted_then_the_files_stay_small_and_say_the_same(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R51: on a small disk, too, they leave room for deletions."""
    SmallDisk(tmp_path, 2**18, monkeypatch)
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send(*(str(number) for number in range(30)))
    held = await shop.receive(10, visibility_s=600)
    for _ in range(100):
        for each in held:
            await shop.change(each, 500)
    sizes = [path.stat().st_size for path in recovery.lease_paths(tmp_path)]

    again = await crashed(shop, tmp_path)
    again.use("orders")

    assert max(sizes) < 5_000
    assert again.counts() == (20, 10, 0)
    await clock.advance(500)
    assert again.counts() == (30, 0, 0)
    await again.engine.aclose()
    await shop.engine.aclose()


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "zeros", "empty"])
async def test_when_the_leases_are_damaged_then_the_server_starts_and_loses_no_message(
    tmp_path: Path, clock: VirtualClock, damage: str
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send("a", "b")
    await shop.receive(1, visibility_s=600)
    await shop.receive(1, visibility_s=600)
    copy = await asyncio.to_thread(copy_of, tmp_path)
    for path in recovery.lease_paths(copy):
        data = path.read_bytes()
        path.write_bytes(
            {
                "cut": data[:-3],
                "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:] if data else b"",
                "foreign": b"x" * len(data),
                "zeros": data + bytes(100),
                "empty": b"",
            }[damage]
        )

    again = await Shop.open(clock, SqsStore(copy))
    again.use("orders")

    expected = {"cut": 1, "flipped": 1, "foreign": 0, "zeros": 2, "empty": 0}[damage]
    assert again.counts() == (2 - expected, expected, 0)
    await clock.advance(600)
    assert sorted(await again.bodies()) == ["a", "b"]
    await again.engine.aclose()
    await shop.engine.aclose()


async def test_when_the_clock_was_set_back_then_a_lease_lasts_no_longer_than_it_was_given_for(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T14; a month of wall-clock must not hide a message for a month."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send("held")
    await shop.receive(visibility_s=30)
    copy = await asyncio.to_thread(copy_of, tmp_path)
    earlier = WrongClock()

    again = await Shop.open(earlier, SqsStore(copy))
    again.use("orders")

    assert await again.bodies() == []
    await earlier.advance(30)
    assert await again.bodies() == ["held"]
    await again.engine.aclose()
    await shop.engine.aclose()
