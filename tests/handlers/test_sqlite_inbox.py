"""The SQLite inbox: processes, crashes, broken files."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import aiosqlite
import pytest

from handlers import SqliteInbox
from pump.clock import SYSTEM_CLOCK
from pump.errors import StorageFailed
from pump.stores.inbox import AlreadyDone, Busy, Claimed

CHILD = Path(__file__).with_name("child_claimer.py")
ROOT = CHILD.parents[2]
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inbox.db"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start_child(what: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(path), what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT)},
        )
        started.append(child)
        return child

    yield start_child
    for child in started:
        child.kill()
        child.communicate()


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go_on(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_of_several_processes_that_open_a_new_file_at_once_one_is_given_the_key(
    start: Start,
) -> None:
    """R12, for the inbox."""
    children = [start("claim") for _ in range(4)]
    assert [line_of(child) for child in children] == ["ready"] * 4

    for child in children:
        go_on(child)

    assert sorted(line_of(child) for child in children) == ["Busy", "Busy", "Busy", "Claimed"]


async def test_a_process_killed_between_claim_and_mark_delays_the_key_and_no_more(
    start: Start, path: Path
) -> None:
    child = start("hold")
    assert line_of(child) == "ready"
    go_on(child)
    assert line_of(child) == "Claimed"
    child.kill()

    async with SqliteInbox(path) as inbox:
        now_s = SYSTEM_CLOCK.time_s()
        early = await inbox.claim("k", owner="b", now_s=now_s, lease_s=30.0)
        late = await inbox.claim("k", owner="b", now_s=now_s + 31.0, lease_s=30.0)

    assert isinstance(early, Busy)
    assert late == Claimed()


async def test_a_process_killed_after_the_mark_leaves_the_key_done(
    start: Start, path: Path
) -> None:
    child = start("complete")
    assert line_of(child) == "ready"
    go_on(child)
    assert [line_of(child), line_of(child)] == ["Claimed", "completed"]
    child.kill()

    async with SqliteInbox(path) as inbox:
        now_s = SYSTEM_CLOCK.time_s() + 31.0
        assert await inbox.claim("k", owner="b", now_s=now_s, lease_s=30.0) == AlreadyDone()


def test_a_process_that_never_closes_its_inbox_still_ends(path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from handlers import SqliteInbox\n"
        "inbox = SqliteInbox(sys.argv[1])\n"
        "asyncio.run(inbox.complete('k', owner='a', now_s=0.0))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], env={"PYTHONPATH": str(ROOT)}, timeout=15
    )

    assert ended.returncode == 0


def test_making_one_touches_nothing(path: Path) -> None:
    SqliteInbox(path)

    assert not path.exists()


async def test_closed_or_pickled_it_opens_its_file_again(path: Path) -> None:
    async with SqliteInbox(path, retention=timedelta(hours=1)) as inbox:
        await inbox.complete("k", owner="a", now_s=0.0)
        await inbox.aclose()
        assert await inbox.claim("k", owner="b", now_s=1.0, lease_s=30.0) == AlreadyDone()

        async with pickle.loads(pickle.dumps(inbox)) as copy:
            claim = await copy.claim("k", owner="b", now_s=3_601.0, lease_s=30.0)
            assert claim == Claimed()


def test_one_inbox_may_serve_one_loop_after_another(path: Path) -> None:
    inbox = SqliteInbox(path)

    async def use_it_at_once() -> int:
        claims = await asyncio.gather(
            *(inbox.claim("k", owner=str(n), now_s=0.0, lease_s=30.0) for n in range(5))
        )
        await inbox.release("k", owner=str(claims.index(Claimed())))
        return claims.count(Claimed())

    assert [asyncio.run(use_it_at_once()) for _ in range(3)] == [1, 1, 1]
    asyncio.run(inbox.aclose())


async def test_marks_that_come_together_are_all_written_even_if_some_callers_are_cancelled(
    path: Path,
) -> None:
    async with SqliteInbox(path) as inbox:
        await inbox.complete("opened", owner="a", now_s=0.0)
        tasks = [
            asyncio.create_task(inbox.complete(f"k{number}", owner="a", now_s=0.0))
            for number in range(60)
        ]
        await asyncio.to_thread(int)
        for task in tasks[:10]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        claims = [
            await inbox.claim(f"k{number}", owner="b", now_s=1.0, lease_s=30.0)
            for number in range(10, 60)
        ]

    assert set(claims) == {AlreadyDone()}


async def test_what_has_expired_is_removed_as_new_keys_come(path: Path) -> None:
    async with SqliteInbox(path, retention=timedelta(seconds=60)) as inbox:
        for number in range(700):
            key, now_s = f"k{number}", number * 10.0
            await inbox.claim(key, owner="a", now_s=now_s, lease_s=30.0)
            await inbox.complete(key, owner="a", now_s=now_s)

        async with (
            aiosqlite.connect(path) as db,
            db.execute("SELECT count(*) FROM pump_inbox") as cursor,
        ):
            row = await cursor.fetchone()

    assert row is not None
    assert row[0] < 300


async def claim_once(path: Path, key: str) -> None:
    async with SqliteInbox(path) as inbox:
        await inbox.claim(key, owner="a", now_s=0.0, lease_s=30.0)


def test_a_file_that_is_no_database_is_named_with_a_remedy_and_left_alone(path: Path) -> None:
    content = b"this is not a database, is it?" * 99
    path.write_bytes(content)

    with pytest.raises(StorageFailed, match="move it away") as caught:
        asyncio.run(claim_once(path, "k"))

    assert caught.value.path == str(path)
    assert path.read_bytes() == content


def test_a_damaged_file_is_named_with_a_remedy(path: Path) -> None:
    async def fill() -> None:
        async with SqliteInbox(path) as inbox:
            for number in range(200):
                await inbox.complete(f"{number}{'x' * 200}", owner="a", now_s=0.0)

    asyncio.run(fill())
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))

    with pytest.raises(StorageFailed, match="move it away"):
        asyncio.run(claim_once(path, "k"))


async def test_a_folder_that_does_not_exist_is_named_with_a_remedy(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "nowhere" / "inbox.db") as inbox:
        with pytest.raises(StorageFailed, match="folder must exist"):
            await inbox.claim("k", owner="a", now_s=0.0, lease_s=30.0)


async def test_after_a_failure_to_open_the_next_use_tries_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with SqliteInbox(folder / "inbox.db") as inbox:
        with pytest.raises(StorageFailed):
            await inbox.claim("k", owner="a", now_s=0.0, lease_s=30.0)
        folder.mkdir()

        assert await inbox.claim("k", owner="a", now_s=0.0, lease_s=30.0) == Claimed()
