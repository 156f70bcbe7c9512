"""The inbox in PostgreSQL: machines, clocks, crashes, answers that are lost, poolers and roles."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from handlers import OnceOnly, PostgresInbox, SqlAlchemyInbox
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, StorageFailed
from pump.outcome import DeferMessage
from pump.stores import postgres_inbox
from pump.stores.inbox import AlreadyDone, Busy, Claimed, current_claim
from pump.stores.inbox_rows import INBOX
from pump.subscription import MakeChannels
from pump.testing.virtual_clock import VirtualClock
from tests.brokers.postgres_server import PostgresServer
from tests.brokers.tcp_proxy import TcpProxy

from .support import a_context, run
from .tills import PAY, PostgresTill, Till

pytestmark = pytest.mark.broker
ROOT = Path(__file__).resolve().parents[2]
NOW_S = 1_000_000.0
YEAR_S = 365 * 86_400.0


@pytest.fixture
async def machine(postgres_schema: str) -> AsyncIterator[Callable[..., PostgresInbox]]:
    """Makes inboxes that share a schema, each as a machine of its own."""
    async with AsyncExitStack() as inboxes:

        def make(url: str = postgres_schema, **options: Any) -> PostgresInbox:
            made = PostgresInbox(url, **options)
            inboxes.push_async_exit(made)
            return made

        yield make


@asynccontextmanager
async def till_at(url: str, schema: str, **options: Any) -> AsyncIterator[PostgresTill]:
    till = PostgresTill(f"{url}?schema={schema}", **options)
    try:
        yield till
    finally:
        await till.inbox.aclose()


async def deliver(till: Till, handle: Any, *, message_id: str = "m1", lease_s: float = 30.0) -> str:
    """One delivery after the other, until one of them is not deferred: what it came to."""
    once = OnceOnly(till.inbox, lease=timedelta(seconds=lease_s))
    while True:
        context = a_context(SYSTEM_CLOCK, message_id=message_id)
        try:
            await run(handle, [once], context=context)
        except DeferMessage as signal:
            delay = signal.delay or timedelta(0)
            await SYSTEM_CLOCK.sleep(min(delay.total_seconds(), 0.05))
        except StorageFailed:
            await SYSTEM_CLOCK.sleep(0.05)
        else:
            return "processed"


# Machines.


async def test_when_machines_open_a_new_schema_at_once_then_one_is_given_the_key(
    machine: Callable[..., PostgresInbox],
) -> None:
    """R12, for the inbox."""
    claims = await asyncio.gather(
        *(machine().claim("k", owner=str(n), now_s=0.0, lease_s=30.0) for n in range(5))
    )

    assert claims.count(Claimed()) == 1
    assert all(isinstance(each, Busy) for each in claims if each != Claimed())


@pytest.mark.slow
async def test_when_two_machines_race_for_a_hundred_messages_then_each_is_handled_once(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """R80: both are given every message, at the same moment."""
    schema = postgres_schema.partition("?schema=")[2]
    async with till_at(postgres.url(), schema) as one:
        other = PostgresInbox(postgres_schema)
        for number in range(100):
            message_id = f"m{number}"
            twin = Twin(one, other)
            await asyncio.gather(
                deliver(one, one.paying(), message_id=message_id),
                deliver(twin, twin.paying(), message_id=message_id),
            )
        await other.aclose()

        assert await one.payments() == 100


class Twin(PostgresTill):
    """The same till on another machine."""

    def __init__(self, till: PostgresTill, inbox: PostgresInbox) -> None:
        self._server, self.schema, self.inbox = till._server, till.schema, inbox


@pytest.mark.parametrize("apart_s", [-60.0, 60.0, 30 * YEAR_S])
async def test_when_the_clocks_of_machines_are_apart_then_a_claim_lasts_its_lease_all_the_same(
    machine: Callable[..., PostgresInbox], apart_s: float
) -> None:
    """And a mark its retention: time is the server's."""
    one, other = machine(), machine()
    await one.claim("k", owner="a", now_s=NOW_S, lease_s=30.0)

    busy = await other.claim("k", owner="b", now_s=NOW_S + apart_s, lease_s=30.0)

    assert isinstance(busy, Busy)
    # In the time of the machine that asked, as it will compare.
    assert 20.0 < busy.expires_at_s - (NOW_S + apart_s) <= 30.0
    assert await other.extend("k", owner="a", now_s=NOW_S + apart_s, lease_s=30.0)
    await other.complete("k", owner="a", now_s=NOW_S - apart_s)
    assert await one.claim("k", owner="b", now_s=NOW_S + apart_s, lease_s=30.0) == AlreadyDone()


async def test_when_a_lease_is_over_by_the_server_s_clock_then_the_key_is_free(
    machine: Callable[..., PostgresInbox],
) -> None:
    one, other = machine(), machine()
    await one.claim("k", owner="a", now_s=NOW_S, lease_s=0.2)

    while True:
        claim = await other.claim("k", owner="b", now_s=NOW_S, lease_s=30.0)
        if claim == Claimed():
            break
        assert isinstance(claim, Busy)

    assert not await one.extend("k", owner="a", now_s=NOW_S, lease_s=30.0)


async def test_when_the_server_s_clock_was_set_back_then_a_claim_lasts_a_lease_at_most(
    machine: Callable[..., PostgresInbox],
) -> None:
    inbox = machine(time_of="caller")
    await inbox.claim("k", owner="a", now_s=NOW_S + 86_400, lease_s=30.0)

    assert await inbox.claim("k", owner="b", now_s=NOW_S, lease_s=30.0) == Busy(NOW_S + 30)
    assert await inbox.claim("k", owner="b", now_s=NOW_S + 30, lease_s=30.0) == Claimed()


# Transactions that are under way.


async def test_when_a_lease_ends_in_the_middle_of_a_transaction_then_no_second_run_gets_through(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """R80: its process stands still; what it has not committed yet is protected by its lock."""
    schema = postgres_schema.partition("?schema=")[2]
    async with till_at(postgres.url(), schema, time_of="caller") as till:
        other = PostgresInbox(postgres_schema, time_of="caller")
        clock = VirtualClock()
        late_s = clock.time_s() + 100
        seen: list[object] = []

        async def handle(_: Any) -> None:
            async with till.block() as connection:
                await till.execute(connection, PAY)
                key = "shop.Pay:m1"
                seen.append(await other.claim(key, owner="b", now_s=late_s, lease_s=30.0))
                seen.append(await till.inbox.extend(key, owner="c", now_s=late_s, lease_s=30.0))
                await other.release(key, owner="b")

        await run(handle, [OnceOnly(till.inbox)], context=a_context(clock))

        # For a second, until the next look.
        assert seen == [Busy(late_s + 1.0), False]
        again = await other.claim("shop.Pay:m1", owner="b", now_s=late_s, lease_s=30.0)
        assert again == AlreadyDone()
        assert await till.payments() == 1
        await other.aclose()


async def test_when_a_transaction_takes_longer_than_its_lease_then_its_heartbeat_is_no_obstacle(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """To extend the claim would wait for the lock of the handler's own transaction."""
    schema = postgres_schema.partition("?schema=")[2]
    async with till_at(postgres.url(), schema) as till:

        async def handle(_: Any) -> None:
            async with till.block() as connection:
                await till.execute(connection, PAY)
                _, held = current_claim(till.inbox)
                assert await till.inbox.extend(held.key, owner=held.owner, now_s=NOW_S, lease_s=0.2)
                await SYSTEM_CLOCK.sleep(0.5)

        assert await deliver(till, handle, lease_s=0.2) == "processed"
        assert await till.payments() == 1


async def test_when_another_owner_completes_a_key_that_is_locked_then_other_marks_do_not_wait(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    async with till_at(postgres.url(), schema) as till:
        inbox = till.inbox
        waiting: list[asyncio.Task[None]] = []

        async def handle(_: Any) -> None:
            async with till.block() as connection:
                await till.execute(connection, PAY)
                key = "shop.Pay:m1"
                waiting.append(asyncio.create_task(inbox.complete(key, owner="late", now_s=NOW_S)))
                await inbox.claim("other", owner="a", now_s=NOW_S, lease_s=30.0)
                await inbox.complete("other", owner="a", now_s=NOW_S)
                assert not waiting[0].done()

        await deliver(till, handle)
        await waiting[0]

        assert await till.payments() == 1


async def test_when_a_handling_in_a_block_has_a_transaction_of_its_own_then_each_commits_alone(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    async with till_at(postgres.url(), schema) as till:

        async def handle(_: Any) -> None:
            async with till.block():
                inner = a_context(SYSTEM_CLOCK, message_id="m2")
                await run(till.paying(), [OnceOnly(till.inbox)], context=inner)

        await deliver(till, handle)

        assert await till.payments() == 1


async def test_when_a_block_changes_how_rows_are_made_then_the_next_one_does_not_see_it(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    rows: list[Any] = []
    async with till_at(f"{postgres.url()}", schema) as till:

        async def handle(_: Any) -> None:
            async with till.block() as connection:
                rows.append(await (await connection.execute("SELECT 1 AS n")).fetchone())
                connection.row_factory = dict_row

        for number in range(3):
            await deliver(till, handle, message_id=f"m{number}")

    assert rows == [(1,)] * 3


async def test_when_a_block_commits_and_begins_anew_then_it_is_told_not_to(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    async with till_at(postgres.url(), schema) as till:

        async def handle(_: Any) -> None:
            async with till.block() as connection:
                await connection.execute("COMMIT")
                await connection.execute("BEGIN")

        with pytest.raises(StorageFailed, match="ended the transaction itself"):
            await run(handle, [OnceOnly(till.inbox)], context=a_context(SYSTEM_CLOCK))


# What breaks.


async def test_when_the_answer_to_the_commit_is_lost_then_the_mark_decides(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """R80: handled once, effect once."""
    schema = postgres_schema.partition("?schema=")[2]
    async with TcpProxy(postgres.port) as proxy, till_at(postgres.url(), schema) as direct:
        inbox = PostgresInbox(f"{postgres.url(port=proxy.port)}?schema={schema}")
        till, failures = Twin(direct, inbox), 0
        await deliver(till, till.paying(), message_id="m0")
        pay = till.paying()

        async def handle(request: Any) -> None:
            nonlocal failures
            proxy.sever_at_answer_to(b"COMMIT\x00")
            try:
                await pay(request)
            except StorageFailed:
                failures += 1
                raise

        await deliver(till, handle)
        await inbox.aclose()

        assert (failures, await direct.payments()) == (1, 2)


async def test_when_the_connection_is_cut_in_a_transaction_then_it_is_undone_and_done_again(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    async with TcpProxy(postgres.port) as proxy, till_at(postgres.url(), schema) as direct:
        inbox = PostgresInbox(f"{postgres.url(port=proxy.port)}?schema={schema}")
        till, tries = Twin(direct, inbox), 0

        async def handle(_: Any) -> None:
            nonlocal tries
            tries += 1
            async with till.block() as connection:
                await till.execute(connection, PAY)
                if tries == 1:
                    proxy.sever()

        assert await deliver(till, handle) == "processed"
        await inbox.aclose()

        assert (tries, await direct.payments()) == (2, 1)


async def test_when_the_server_is_killed_in_a_transaction_then_it_is_undone_and_done_again(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    """R80: `pg_ctl -m immediate`: no checkpoint, and nothing is said to clients."""
    server = await asyncio.to_thread(own_postgres, is_safe=True)
    async with till_at(server.url(), "shop") as till:
        await deliver(till, till.paying(), message_id="m0")
        tries = 0

        async def handle(_: Any) -> None:
            nonlocal tries
            tries += 1
            async with till.block() as connection:
                await till.execute(connection, PAY)
                if tries == 1:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)

        assert await deliver(till, handle, lease_s=1.0) == "processed"
        assert await deliver(till, till.paying(), message_id="m0") == "processed"

        assert (tries, await till.payments()) == (2, 2)


async def test_when_the_database_cannot_be_reached_then_that_is_said_without_the_password(
    machine: Callable[..., PostgresInbox],
) -> None:
    inbox = machine("postgres://me:s3cret@127.0.0.1:9/shop")

    for _ in range(3):
        with pytest.raises(StorageFailed) as caught:
            await inbox.claim("k", owner="a", now_s=0.0, lease_s=30.0)
        assert caught.value.path == "postgres://127.0.0.1:9/shop"
        assert "s3cret" not in f"{caught.value}{inbox!r}"


# The table.


async def test_when_the_table_is_missing_or_of_another_version_then_that_is_said(
    machine: Callable[..., PostgresInbox],
    postgres: PostgresServer,
    postgres_schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R56: and a newer one is left alone."""
    with pytest.raises(ConfigurationError, match=r"MakeChannels\.CREATE"):
        await claim(machine(make_tables=MakeChannels.VALIDATE))
    assuming = machine(make_tables=MakeChannels.ASSUME)
    with pytest.raises(StorageFailed, match=r"MakeChannels\.CREATE"):
        await claim(assuming)
    assert await claim(machine()) == Claimed()
    # Found as soon as it is there.
    assert await claim(assuming) == Claimed()
    schema = postgres_schema.partition("?schema=")[2]
    monkeypatch.setattr(postgres_inbox, "INBOX", attrs.evolve(INBOX, version=2))
    with pytest.raises(ConfigurationError, match="version 1, and this Pumphouse needs 2"):
        await claim(machine(make_tables=MakeChannels.VALIDATE))
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f'UPDATE "{schema}".inbox_version SET number = 99'.encode())
    with pytest.raises(ConfigurationError, match="newer Pumphouse"):
        await claim(machine())


async def claim(inbox: PostgresInbox) -> object:
    return await inbox.claim("k", owner="a", now_s=NOW_S, lease_s=30.0)


async def test_when_the_role_has_least_privilege_then_everything_works(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """As docs/handlers.md has it."""
    schema = postgres_schema.partition("?schema=")[2]
    role = f"role_{schema}"
    page = (ROOT / "docs" / "handlers.md").read_text(encoding="utf-8")
    grants = page.partition("```postgresql\nGRANT")[2].partition("```")[0]
    sql = f"GRANT{grants}".replace("shop_pump", role).replace("pumphouse", schema)
    async with till_at(postgres.url(), schema) as till:
        await claim(till.inbox)
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN; {sql}".encode())
            connection.execute(f"GRANT INSERT ON {schema}.payments TO {role}".encode())
            connection.execute(f'ALTER TABLE "{schema}".inbox SET (autovacuum_enabled)'.encode())
            try:
                inbox = PostgresInbox(f"{postgres.url(user=role)}?schema={schema}")
                twin = Twin(till, inbox)
                await deliver(twin, twin.paying())
                await inbox.claim("other", owner="a", now_s=NOW_S, lease_s=30.0)
                await inbox.complete("never claimed", owner="a", now_s=NOW_S)
                await inbox.release("other", owner="a")
                await inbox.aclose()
            finally:
                connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
        assert await till.payments() == 1


async def test_when_a_pooler_gives_each_transaction_another_connection_then_everything_works(
    postgres: PostgresServer, pgbouncer: int, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    async with till_at(postgres.url(), schema) as direct:
        inbox = PostgresInbox(f"{postgres.url(port=pgbouncer)}?schema={schema}")
        till = Twin(direct, inbox)
        pay = till.paying()

        await asyncio.gather(
            *(deliver(till, pay, message_id=f"m{number % 20}") for number in range(60))
        )
        await inbox.aclose()

        assert await direct.payments() == 20


# Keys, and what is forgotten.


@pytest.mark.parametrize("key", ["", "\0", "\ud800", "ä" * 5_000, "x" * 100_000])
async def test_when_a_key_is_unusual_then_it_is_a_key_like_others(
    machine: Callable[..., PostgresInbox], key: str
) -> None:
    inbox = machine()
    assert await inbox.claim(key, owner="a", now_s=NOW_S, lease_s=30.0) == Claimed()
    assert await inbox.claim(f"{key}2", owner="a", now_s=NOW_S, lease_s=30.0) == Claimed()
    await inbox.complete(key, owner="a", now_s=NOW_S)

    assert await inbox.claim(key, owner="b", now_s=NOW_S, lease_s=30.0) == AlreadyDone()


async def test_when_marks_come_together_then_they_share_statements_and_none_is_left_out(
    machine: Callable[..., PostgresInbox],
) -> None:
    """Even if some callers are cancelled."""
    inbox = machine()
    await asyncio.gather(
        *(inbox.claim(f"k{n}", owner="a", now_s=NOW_S, lease_s=30.0) for n in range(300))
    )
    counts = inbox._tables._database.counts
    assert counts["claim"] < 10
    tasks = [
        asyncio.create_task(inbox.complete(f"k{n % 250}", owner=f"{n}", now_s=NOW_S))
        for n in range(300)
    ]
    await SYSTEM_CLOCK.sleep(0)
    for task in tasks[:10]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    claims = await asyncio.gather(
        *(inbox.claim(f"k{n}", owner="b", now_s=NOW_S, lease_s=30.0) for n in range(10, 250))
    )
    assert set(claims) == {AlreadyDone()}
    assert counts["complete"] < 10


async def test_when_keys_have_expired_then_machines_remove_them_together_and_the_table_is_reused(
    machine: Callable[..., PostgresInbox], postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    machines = [machine(time_of="caller", retention=timedelta(seconds=60)) for _ in range(3)]

    async def work(inbox: PostgresInbox, name: str) -> None:
        for number in range(1_000):
            key, now_s = f"{name}{number}", NOW_S + number * 10.0
            await inbox.claim(key, owner="a", now_s=now_s, lease_s=30.0)
            await inbox.complete(key, owner="a", now_s=now_s)

    await asyncio.gather(*(work(inbox, str(n)) for n, inbox in enumerate(machines)))
    for inbox in machines:
        await inbox.aclose()

    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        [left] = connection.execute(f'SELECT count(*) FROM "{schema}".inbox'.encode()).fetchone()  # type: ignore[misc]
    assert left < 1_000


async def test_when_rows_are_locked_or_extended_then_pruning_passes_over_them_and_waits_for_none(
    machine: Callable[..., PostgresInbox], postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    inbox = machine(time_of="caller", retention=timedelta(seconds=60))
    for key in ("locked", "extended", "over"):
        await inbox.claim(key, owner="a", now_s=NOW_S, lease_s=30.0)
    await inbox.extend("extended", owner="a", now_s=NOW_S + 50, lease_s=300.0)
    with psycopg.connect(postgres.url()) as connection:
        look = f"SELECT 1 FROM \"{schema}\".inbox WHERE key = 'locked' FOR UPDATE"
        connection.execute(look.encode())
        for number in range(300):
            now_s = NOW_S + 100
            await inbox.claim(f"new{number}", owner="a", now_s=now_s, lease_s=30.0)
        await inbox._rows.finish()
        keys = f'SELECT key FROM "{schema}".inbox WHERE expires_at_s < {NOW_S + 99}'
        left = {bytes(row[0]) for row in connection.execute(keys.encode())}
        extended = f"SELECT count(*) FROM \"{schema}\".inbox WHERE key = 'extended'"
        assert connection.execute(extended.encode()).fetchone() == (1,)

    assert left == {b"locked"}


async def test_when_a_claim_is_extended_and_marked_then_no_index_is_written(
    machine: Callable[..., PostgresInbox], postgres: PostgresServer, postgres_schema: str
) -> None:
    """What keeps the table from bloating: updates within the page (HOT)."""
    schema = postgres_schema.partition("?schema=")[2]
    inbox = machine()
    for number in range(200):
        await inbox.claim(f"k{number}", owner="a", now_s=NOW_S, lease_s=30.0)
        await inbox.complete(f"k{number}", owner="a", now_s=NOW_S)
    await inbox.aclose()

    asked = (
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables "
        f"WHERE schemaname = '{schema}' AND relname = 'inbox'"
    )
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        found: Any = (0, 0)
        while not found[0]:
            found = connection.execute(asked.encode()).fetchone()
    updates, within = found
    assert within >= 0.95 * updates


async def test_closed_or_pickled_it_connects_again(machine: Callable[..., PostgresInbox]) -> None:
    inbox = machine(time_of="caller", retention=timedelta(hours=1))
    await inbox.complete("k", owner="a", now_s=0.0)
    await inbox.aclose()
    assert await inbox.claim("k", owner="b", now_s=1.0, lease_s=30.0) == AlreadyDone()

    async with pickle.loads(pickle.dumps(inbox)) as copy:
        assert await copy.claim("k", owner="b", now_s=3_601.0, lease_s=30.0) == Claimed()


def test_one_inbox_may_serve_one_loop_after_another(postgres_schema: str) -> None:
    inbox = PostgresInbox(postgres_schema)

    async def use_it_at_once() -> int:
        claims = await asyncio.gather(
            *(inbox.claim("k", owner=str(n), now_s=0.0, lease_s=30.0) for n in range(5))
        )
        await inbox.release("k", owner=str(claims.index(Claimed())))
        return claims.count(Claimed())

    assert [asyncio.run(use_it_at_once()) for _ in range(3)] == [1, 1, 1]
    asyncio.run(inbox.aclose())


async def test_a_cancelled_claim_leaves_nothing_behind_once_it_is_released(
    machine: Callable[..., PostgresInbox],
) -> None:
    inbox = machine()
    await claim(inbox)
    for number in range(30):
        key = f"k{number}"
        task = asyncio.create_task(inbox.claim(key, owner="a", now_s=NOW_S, lease_s=30.0))
        for _ in range(number % 10):
            await SYSTEM_CLOCK.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await inbox.release(key, owner="a")

        assert await inbox.claim(key, owner="b", now_s=NOW_S, lease_s=30.0) == Claimed()


# SQLAlchemy.


async def test_when_an_engine_or_a_factory_of_sessions_is_given_then_it_is_used(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """And the table is that of `PostgresInbox`."""
    schema = postgres_schema.partition("?schema=")[2]
    bare = postgres.url().partition("://")[2]
    engine = create_async_engine(f"postgresql+asyncpg://{bare}")
    async with PostgresInbox(postgres_schema) as plain:
        await plain.complete("k", owner="a", now_s=NOW_S)
        for given in (engine, async_sessionmaker(engine)):
            async with SqlAlchemyInbox(given, schema=schema) as inbox:
                claimed = await inbox.claim("k", owner="b", now_s=NOW_S, lease_s=30.0)
                assert claimed == AlreadyDone()
    await engine.dispose()


@pytest.mark.parametrize(
    "make",
    [
        lambda: SqlAlchemyInbox(create_engine("sqlite://")),  # type: ignore[arg-type]
        lambda: SqlAlchemyInbox(async_sessionmaker()),
        lambda: SqlAlchemyInbox(create_async_engine("sqlite+aiosqlite://")),
        lambda: SqlAlchemyInbox(create_async_engine("postgresql+asyncpg://"), schema="Shop"),
        lambda: SqlAlchemyInbox(create_async_engine("postgresql+asyncpg://"), time_of="me"),  # type: ignore[arg-type]
        lambda: PostgresInbox("postgres://", retention=timedelta(0)),
        lambda: PostgresInbox("postgres://", time_of="me"),  # type: ignore[arg-type]
        lambda: PostgresInbox("mysql://"),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], object]) -> None:
    """R56."""
    with pytest.raises(ConfigurationError):
        make()
