"""The stores of nonces: one contract, and what is each one's own."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pump.crypto import MemoryNonces, PostgresNonces, SqliteNonces
from pump.errors import ConfigurationError, StorageFailed
from pump.message import new_id
from pump.stores.nonces import NonceMark, NonceStore
from tests.brokers.postgres_server import PostgresServer

CHILD = Path(__file__).with_name("child_replayer.py")
ROOT = CHILD.parents[2]
N, M = b"n" * 16, b"m" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nonces.db"


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.broker)],
)
async def store(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[NonceStore]:
    made: NonceStore
    match request.param:
        case "memory":
            made = MemoryNonces()
        case "sqlite":
            made = SqliteNonces(path)
        case _:
            made = PostgresNonces(request.getfixturevalue("postgres_schema"))
    yield made
    await made.aclose()


async def claim(store: NonceStore, nonce: bytes, holder: str, *, now_s: float = 0.0) -> bool:
    return await store.claim(nonce, holder=holder, now_s=now_s, until_s=now_s + 60.0)


async def mark(
    store: NonceStore, nonce: bytes, holder: str, *, is_done: bool, now_s: float = 0.0
) -> None:
    await store.mark([NonceMark(nonce, holder, is_done, now_s + 60.0)])


async def test_a_nonce_is_its_holders_and_nobody_elses(store: NonceStore) -> None:
    """T6."""
    assert await claim(store, N, "a")
    assert await claim(store, N, "a")
    assert not await claim(store, N, "b")
    assert await claim(store, M, "b")


async def test_a_nonce_that_is_done_is_nobodys(store: NonceStore) -> None:
    """T6."""
    await claim(store, N, "a")

    await mark(store, N, "a", is_done=True)

    assert not await claim(store, N, "a")
    assert not await claim(store, N, "b")


async def test_a_nonce_that_was_released_is_anybodys(store: NonceStore) -> None:
    """T6: a redrive comes back as another broker message."""
    await claim(store, N, "a")

    await mark(store, N, "a", is_done=False)

    assert await claim(store, N, "b")


async def test_who_does_not_hold_a_nonce_releases_nothing(store: NonceStore) -> None:
    """T6: a replay that is routed away leaves the original's nonce alone."""
    await claim(store, N, "a")
    await mark(store, N, "b", is_done=False)
    assert not await claim(store, N, "b")

    await mark(store, N, "a", is_done=True)
    await mark(store, N, "a", is_done=False)
    assert not await claim(store, N, "a")


async def test_a_nonce_is_forgotten_when_its_time_is_over(store: NonceStore) -> None:
    """R67: TTL."""
    await claim(store, N, "a")
    await claim(store, M, "a")
    await mark(store, N, "a", is_done=True)

    assert [await claim(store, each, "b", now_s=59.9) for each in (N, M)] == [False, False]
    assert [await claim(store, each, "b", now_s=60.0) for each in (N, M)] == [True, True]


async def test_a_second_sight_renews_the_time(store: NonceStore) -> None:
    """R67: TTL counts from the last sight."""
    await claim(store, N, "a")
    await claim(store, N, "a", now_s=50.0)

    assert not await claim(store, N, "b", now_s=100.0)
    assert await claim(store, N, "b", now_s=110.0)


async def test_of_many_who_claim_at_once_one_is_given_it(store: NonceStore) -> None:
    """T6."""
    answers = await asyncio.gather(*(claim(store, N, f"holder-{number}") for number in range(20)))

    assert answers.count(True) == 1


async def test_what_is_marked_together_is_marked_whole_and_twice_does_no_harm(
    store: NonceStore,
) -> None:
    await claim(store, N, "a")
    await claim(store, M, "a")
    marks = [NonceMark(N, "a", True, 60.0), NonceMark(M, "a", False, 60.0)]

    await store.mark(marks)
    await store.mark(marks)
    await store.mark([])

    assert not await claim(store, N, "a")
    assert await claim(store, M, "b")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "done", "release", "wait"]),
        st.sampled_from([N, M]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=30,
)


async def answer_alike(store: NonceStore, steps: list[tuple[str, bytes, str]]) -> None:
    memory, now_s = MemoryNonces(), 0.0
    try:
        for step, nonce, holder in steps:
            if step == "wait":
                now_s += 25.0
            elif step == "claim":
                assert await claim(memory, nonce, holder, now_s=now_s) == await claim(
                    store, nonce, holder, now_s=now_s
                )
            else:
                for each in (memory, store):
                    await mark(each, nonce, holder, is_done=step == "done", now_s=now_s)
    finally:
        await store.aclose()


@settings(max_examples=25)  # each has a file of its own
@given(STEPS)
async def test_the_stores_answer_alike(steps: list[tuple[str, bytes, str]]) -> None:
    """T6: whatever happens in whatever order."""
    with tempfile.TemporaryDirectory() as folder:
        await answer_alike(SqliteNonces(Path(folder) / "nonces.db"), steps)


@pytest.mark.broker
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
async def test_the_store_in_postgres_answers_alike(
    postgres: PostgresServer, steps: list[tuple[str, bytes, str]]
) -> None:
    """T6: the same."""
    schema = f"steps_{new_id()}"
    await answer_alike(PostgresNonces(f"{postgres.url()}?schema={schema}"), steps)


@pytest.mark.broker
async def test_the_store_in_postgres_outlives_its_process_and_forgets_what_has_expired(
    postgres_schema: str,
) -> None:
    """T6, R67: closed, or pickled, and opened again; and the table does not grow for ever."""
    async with PostgresNonces(postgres_schema) as store:
        await claim(store, M, "a")
        await mark(store, M, "a", is_done=True)
        await store.aclose()
        async with pickle.loads(pickle.dumps(store)) as copy:
            assert not await claim(copy, M, "a")
        for number in range(700):
            await claim(store, number.to_bytes(16), "a", now_s=number * 10.0)
        await store.aclose()

        rows = await store._tables.call(store._tables.statement("SELECT * FROM @.nonces", "look"))

    assert len(rows) < 300


@pytest.mark.broker
async def test_of_several_machines_that_meet_a_replay_one_accepts_it(postgres_schema: str) -> None:
    """T6: none of them has opened the schema before."""
    async with AsyncExitStack() as stack:
        machines = [
            await stack.enter_async_context(PostgresNonces(postgres_schema)) for _ in range(4)
        ]
        for number in range(25):
            nonce = number.to_bytes(16)
            answers = await asyncio.gather(
                *(claim(each, nonce, f"broker-{n}") for n, each in enumerate(machines))
            )
            assert sorted(answers) == [False, False, False, True]


@pytest.mark.broker
async def test_without_its_database_the_store_accepts_nothing_and_says_why() -> None:
    """T6: an ordinary failure, so the message is tried again."""
    async with PostgresNonces("postgres://127.0.0.1:9/shop") as store:
        with pytest.raises(StorageFailed, match=r"postgres://127\.0\.0\.1:9/shop"):
            await claim(store, N, "a")


# -- memory ---------------------------------------------------------------------------------


async def test_in_memory_no_more_than_so_many_are_kept_and_that_is_warned_of_once(
    log: list[MutableMapping[str, Any]],
) -> None:
    store = MemoryNonces(max_count=10)

    for number in range(100):
        assert await claim(store, number.to_bytes(16), "a")

    assert len(store) == 10
    assert not await claim(store, (99).to_bytes(16), "b")
    assert [line["event"] for line in log] == ["nonces.forgotten"]


async def test_in_memory_what_has_expired_is_removed_as_new_ones_come() -> None:
    store = MemoryNonces()

    for number in range(1_000):
        await claim(store, number.to_bytes(16), "a", now_s=number * 1.0)

    assert len(store) <= 61


def test_a_store_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_count"):
        MemoryNonces(max_count=0)
    for path in ("", ":memory:"):
        with pytest.raises(ConfigurationError, match="MemoryNonces"):
            SqliteNonces(path)


# -- SQLite ---------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_of_several_processes_that_meet_a_replay_one_accepts_it(path: Path) -> None:
    """T6: the file is shared, and none of them has opened it before."""
    children = [
        subprocess.Popen(
            [sys.executable, str(CHILD), str(path), f"broker-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT)},
        )
        for number in range(4)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = [child.communicate(timeout=60)[0].split() for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()

    assert {len(answer) for answer in answers} == {25}
    for accepted in zip(*answers, strict=True):
        assert sorted(accepted) == ["False", "False", "False", "True"]


async def test_a_claim_and_a_mark_outlive_their_process(path: Path) -> None:
    """T6: closed, or pickled, and opened again."""
    async with SqliteNonces(path) as store:
        await claim(store, N, "a")
        await claim(store, M, "a")
        await mark(store, M, "a", is_done=True)
        await store.aclose()
        assert not await claim(store, N, "b")

        async with pickle.loads(pickle.dumps(store)) as copy:
            assert await claim(copy, N, "a")
            assert not await claim(copy, M, "a")


async def test_what_has_expired_is_removed_from_the_file(path: Path) -> None:
    """R67: the file does not grow for ever."""
    async with SqliteNonces(path) as store:
        for number in range(700):
            await claim(store, number.to_bytes(16), "a", now_s=number * 10.0)

    assert await asyncio.to_thread(row_count, path) < 300


def row_count(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        [(count,)] = connection.execute("SELECT count(*) FROM pump_nonces")
        return int(count)
    finally:
        connection.close()


def test_a_file_that_is_no_database_is_named_with_a_remedy_and_left_alone(path: Path) -> None:
    content = b"this is not a database, is it?" * 99
    path.write_bytes(content)

    with pytest.raises(StorageFailed, match="move it away"):
        asyncio.run(claim_once(path))

    assert path.read_bytes() == content


def test_a_damaged_file_is_named_with_a_remedy(path: Path) -> None:
    async def fill() -> None:
        async with SqliteNonces(path) as store:
            await claim_many(store)

    asyncio.run(fill())
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))

    with pytest.raises(StorageFailed, match="move it away"):
        asyncio.run(claim_once(path))


async def claim_once(path: Path) -> None:
    async with SqliteNonces(path) as store:
        await claim(store, N, "a")


async def test_a_full_disk_is_a_storage_failure_and_nothing_is_accepted_unseen(
    path: Path,
) -> None:
    """T6: an ordinary failure, so the message is tried again."""
    async with SqliteNonces(path) as store:
        await claim(store, N, "a")
        assert store._file._connections is not None
        # SQLite itself refuses to grow, with the error of a full disk.
        for connection in (store._file._connections.claims, store._file._connections.marks):
            await connection.execute("PRAGMA max_page_count=1")

        with pytest.raises(StorageFailed, match="the disk is full"):
            await claim_many(store)

        assert not await claim(store, N, "b")


async def claim_many(store: NonceStore) -> None:
    for number in range(500):
        await claim(store, number.to_bytes(16), "h" * 200)


async def test_after_a_failure_to_open_the_next_use_tries_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with SqliteNonces(folder / "nonces.db") as store:
        with pytest.raises(StorageFailed, match="folder must exist"):
            await claim(store, N, "a")
        await asyncio.to_thread(folder.mkdir)

        assert await claim(store, N, "a")


def test_making_one_touches_nothing(path: Path) -> None:
    assert repr(SqliteNonces(path)) == f"SqliteNonces('{path}')"
    assert not path.exists()


def test_one_store_may_serve_one_loop_after_another(path: Path) -> None:
    store = SqliteNonces(path)

    async def use_it_at_once(holder: str) -> int:
        return sum(await asyncio.gather(*(claim(store, N, holder) for _ in range(5))))

    assert [asyncio.run(use_it_at_once(holder)) for holder in ("a", "b", "a")] == [5, 0, 5]
    asyncio.run(store.aclose())


async def test_marks_whose_caller_is_cancelled_are_written_whole_or_not_at_all(
    path: Path,
) -> None:
    async with SqliteNonces(path) as store:
        for number in range(50):
            await claim(store, number.to_bytes(16), "a")
        marks = [NonceMark(number.to_bytes(16), "a", True, 60.0) for number in range(50)]

        writing = asyncio.create_task(store.mark(marks))
        await asyncio.to_thread(int)
        writing.cancel()
        await asyncio.wait([writing])

        again = {await claim(store, number.to_bytes(16), "a") for number in range(50)}
        assert len(again) == 1
        await store.mark(marks)
        assert not await claim(store, (7).to_bytes(16), "a")
