"""Files that are removed, replaced or not there: nothing is acknowledged into nowhere (T3)."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gateways.sqs_server.engine import SqsEngine, SqsStore
from pump.errors import StorageFailed
from pump.testing.virtual_clock import VirtualClock

from .shop import Shop


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def move_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def remove_database(folder: Path) -> None:
    (folder / "sqs.db").unlink()


def remove_log(folder: Path) -> None:
    (folder / "sqs.db-wal").unlink()


def remove_lock(folder: Path) -> None:
    (folder / "sqs.lock").unlink()


def replace_database(folder: Path) -> None:
    shutil.copy(folder / "sqs.db", folder / "copy")
    os.replace(folder / "copy", folder / "sqs.db")


@pytest.mark.parametrize(
    "damage",
    [
        remove_folder,
        move_folder,
        remove_database,
        remove_log,
        remove_lock,
        replace_database,
    ],
)
async def test_when_files_are_removed_under_a_server_then_nothing_is_confirmed_any_more(
    tmp_path: Path, clock: VirtualClock, damage: Callable[[Path], None]
) -> None:
    """T3: also the second time, and what is in memory can still be read."""
    folder = tmp_path / "data"
    shop = await Shop.open(clock, SqsStore(folder))
    await shop.make("orders")
    await shop.send("a")

    await asyncio.to_thread(damage, folder)

    for _ in range(2):
        with pytest.raises(StorageFailed, match=r"removed or replaced .* start the program again"):
            await shop.send("b")
    assert await shop.bodies() == ["a"]
    await shop.engine.aclose()


async def test_when_the_folder_was_put_back_then_a_new_start_finds_what_was_confirmed(
    tmp_path: Path, clock: VirtualClock
) -> None:
    folder = tmp_path / "data"
    shop = await Shop.open(clock, SqsStore(folder))
    await shop.make("orders")
    await shop.send("a")
    await asyncio.to_thread(move_folder, folder)
    with pytest.raises(StorageFailed):
        await shop.make("never")
    await asyncio.to_thread((tmp_path / "elsewhere").rename, folder)
    with pytest.raises(StorageFailed):
        await shop.send("b")
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(folder))
    again.use("orders")
    assert "a" in await again.bodies()
    await again.engine.aclose()


async def test_when_the_file_is_a_link_to_nowhere_then_opening_says_so(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """A volume that is not mounted is not an empty queue."""
    link = tmp_path / "sqs.db"
    link.symlink_to(tmp_path / "unmounted" / "sqs.db")

    with pytest.raises(StorageFailed, match=r"links to .*unmounted.* is not there"):
        await SqsEngine(clock, SqsStore(tmp_path)).open()

    assert link.is_symlink()


async def test_when_the_file_is_a_link_then_the_database_is_where_it_leads(
    tmp_path: Path, clock: VirtualClock
) -> None:
    volume, folder = tmp_path / "volume", tmp_path / "data"
    volume.mkdir()
    folder.mkdir()
    (volume / "sqs.db").touch()
    (folder / "sqs.db").symlink_to(volume / "sqs.db")

    shop = await Shop.open(clock, SqsStore(folder))
    await shop.make("orders")
    await shop.send("a")
    await shop.engine.aclose()

    assert (folder / "sqs.db").is_symlink()
    again = await Shop.open(clock, SqsStore(volume))
    again.use("orders")
    assert await again.bodies() == ["a"]
    await again.engine.aclose()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_when_the_file_is_no_regular_file_then_it_stays_as_it_was(
    tmp_path: Path, clock: VirtualClock, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "sqs.db"
    make(path)
    before = path.stat()

    with pytest.raises(StorageFailed, match="not a regular file"):
        await SqsEngine(clock, SqsStore(tmp_path)).open()

    assert os.path.samestat(path.stat(), before)
