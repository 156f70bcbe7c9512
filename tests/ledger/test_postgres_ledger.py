"""A ledger in PostgreSQL: a server that goes, answers that are lost, roles, the command line."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, StorageFailed
from pump.postgres.settings import PostgresSettings
from pump.stores.ledger import PostgresLedger
from pump.stores.ledger.buffered_ledger import Buffering
from pump.stores.ledger.postgres_ledger import LedgerTable
from pump.stores.ledger.reading import PostgresReader
from pump.subscription import MakeChannels
from pump.testing.virtual_clock import VirtualClock
from tests.brokers.pgbouncer import pooler
from tests.brokers.postgres_server import PostgresServer
from tests.brokers.tcp_proxy import TcpProxy

from .conftest import Pump
from .support import a_row, an_outcome, ids, postgres_rows, write

pytestmark = pytest.mark.broker
ROOT = Path(__file__).resolve().parents[2]
SOON = Buffering(flush_every=timedelta(milliseconds=10))


def table_of(url: str, keep: timedelta | None = None) -> LedgerTable:
    return LedgerTable(PostgresSettings.from_url(url), keep)


def make_table(url: str) -> None:
    table = table_of(url)
    table.open()
    table.close(0.0)


async def test_when_it_is_opened_again_then_earlier_rows_are_still_there(
    postgres_schema: str, clock: VirtualClock
) -> None:
    ledger = pickle.loads(pickle.dumps(PostgresLedger(postgres_schema)))
    await write(ledger, clock, an_outcome(1))
    await clock.advance(1)
    await write(ledger, clock, an_outcome(2))

    assert ids(postgres_rows(postgres_schema)) == ["m-1", "m-2"]


def test_when_texts_hold_what_no_column_can_have_then_the_row_is_written_with_escapes(
    postgres_schema: str,
) -> None:
    """One such row must not keep the others of its batch back."""
    table = table_of(postgres_schema)
    table.append([a_row(message_id="a"), a_row(message_id="\0", detail="\ud800")])
    table.close(0.0)

    rows = postgres_rows(postgres_schema)
    assert [(row.message_id, row.detail) for row in rows] == [("a", None), ("\\x00", "\\ud800")]


def test_when_much_is_too_old_then_it_is_removed_bit_by_bit(
    postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pump.stores.ledger.postgres_ledger._PRUNE_AT_ONCE", 10)
    table = table_of(postgres_schema, timedelta(seconds=10))
    table.append([a_row(time=n // 3, message_id=str(n)) for n in range(25)])
    table.append([a_row(time=100_000_000, message_id="young")])

    table.care(now_s=105.0)
    table.close(105.0)

    assert ids(postgres_rows(postgres_schema)) == ["young"]


async def test_when_the_answer_to_a_commit_is_lost_then_its_rows_are_there_once(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    async with TcpProxy(postgres.port) as proxy:
        table = table_of(f"{postgres.url(port=proxy.port)}?schema={schema}")
        await asyncio.to_thread(table.append, [a_row(message_id="m-0")])
        proxy.sever_at_answer_to(b"COMMIT")
        with pytest.raises(StorageFailed):
            await asyncio.to_thread(table.append, [a_row(message_id="m-1")])

        # As the writer does: the same rows once more, and only then others.
        await asyncio.to_thread(table.append, [a_row(message_id="m-1")])
        await asyncio.to_thread(table.append, [a_row(message_id="m-2")])
        await asyncio.to_thread(table.close, 0.0)

    assert sorted(ids(postgres_rows(postgres_schema))) == ["m-0", "m-1", "m-2"]


async def test_when_a_connection_is_cut_before_the_commit_then_the_rows_are_written_again(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    schema = postgres_schema.partition("?schema=")[2]
    async with TcpProxy(postgres.port) as proxy:
        table = table_of(f"{postgres.url(port=proxy.port)}?schema={schema}")
        await asyncio.to_thread(table.open)
        proxy.sever_at_answer_to(b"pg_current_xact_id")
        with pytest.raises(StorageFailed):
            await asyncio.to_thread(table.append, [a_row(message_id="m-1")])

        await asyncio.to_thread(table.append, [a_row(message_id="m-1")])
        await asyncio.to_thread(table.close, 0.0)

    assert ids(postgres_rows(postgres_schema)) == ["m-1"]


async def test_when_the_server_is_killed_then_rows_wait_until_it_is_back_and_none_is_lost(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    server = await asyncio.to_thread(own_postgres, is_safe=True)
    url = f"{server.url()}?schema=shop"
    ledger = PostgresLedger(url, buffering=SOON)
    await ledger.open("memory", SYSTEM_CLOCK)
    ledger.record(an_outcome(0))
    await ledger.flush()
    await asyncio.to_thread(server.kill)
    for number in range(1, 50):
        ledger.record(an_outcome(number))
    await SYSTEM_CLOCK.sleep(0.2)
    assert ledger.waiting_count == 49

    await asyncio.to_thread(server.start)
    await ledger.flush()
    await ledger.aclose()

    assert sorted(ids(postgres_rows(url))) == sorted(f"m-{n}" for n in range(50))
    assert ledger.dropped_count == 0


async def test_when_the_database_is_out_of_reach_at_the_start_then_the_app_starts_all_the_same(
    clock: VirtualClock,
) -> None:
    """Like a disk that is full: it passes."""
    ledger = PostgresLedger(
        "postgres://me:s3cret@127.0.0.1:9/shop",
        buffering=Buffering(close_within=timedelta(milliseconds=1)),
    )
    await ledger.open("memory", clock)
    ledger.record(an_outcome(1))
    closing = asyncio.create_task(ledger.aclose())
    await clock.advance(1)
    await closing

    assert ledger.dropped_count == 1
    assert "s3cret" not in repr(ledger)


def test_when_the_table_is_missing_or_of_another_version_then_that_is_said(
    postgres_schema: str,
) -> None:
    """R56: and a newer one is left alone."""
    settings = PostgresSettings.from_url(postgres_schema)
    with pytest.raises(ConfigurationError, match="there is no ledger"):
        LedgerTable(settings, None, MakeChannels.VALIDATE).open()
    with pytest.raises(StorageFailed):
        LedgerTable(settings, None, MakeChannels.ASSUME).append([a_row()])
    make_table(postgres_schema)
    server, _, schema = postgres_schema.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'UPDATE "{schema}".ledger_version SET number = 99'.encode())

    with pytest.raises(ConfigurationError, match="newer Pumphouse"):
        table_of(postgres_schema).open()


def test_when_several_begin_at_once_behind_a_pooler_then_every_row_is_kept(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """R44: the table is made by all of them together."""
    schema = postgres_schema.partition("?schema=")[2]
    with pooler(postgres) as port, ThreadPoolExecutor(4) as threads:
        url = f"{postgres.url(port=port)}?schema={schema}"

        def append(writer: int) -> None:
            table = table_of(url)
            for number in range(20):
                table.append([a_row(message_id=f"p{writer}-{number}")])
            table.close(0.0)

        list(threads.map(append, range(4)))

    expected = {f"p{writer}-{number}" for writer in range(4) for number in range(20)}
    found = ids(postgres_rows(postgres_schema))
    assert (set(found), len(found)) == (expected, len(expected))


def test_when_roles_have_least_privilege_then_one_writes_and_one_reads(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """As docs/ledger.md has it."""
    server, _, schema = postgres_schema.partition("?schema=")
    make_table(postgres_schema)
    page = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    grants = page.partition("```postgresql\nGRANT")[2].partition("```")[0]
    with psycopg.connect(server, autocommit=True) as connection:
        roles = {"shop_pump": f"pump_{schema}", "shop_reader": f"reader_{schema}"}
        for role in roles.values():
            connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        sql = f"GRANT{grants}".replace("pumphouse.", f"{schema}.")
        sql = sql.replace("SCHEMA pumphouse", f"SCHEMA {schema}")
        for role, name in roles.items():
            sql = sql.replace(role, name)
        connection.execute(sql.encode())
        try:
            writer = postgres_schema.replace("postgres@", f"{roles['shop_pump']}@")
            reader = postgres_schema.replace("postgres@", f"{roles['shop_reader']}@")
            table = table_of(writer, timedelta(days=1))
            table.append([a_row()])
            assert PostgresReader(PostgresSettings.from_url(reader)).oldest_us() is not None
            table.care(2e9)
            table.close(0.0)
            assert postgres_rows(postgres_schema) == []
        finally:
            for role in roles.values():
                connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_when_a_url_is_given_then_the_command_shows_the_ledger_and_no_secret(
    pump: Pump, postgres_schema: str
) -> None:
    missing = pump("ledger", postgres_schema)
    assert "there is no ledger" in missing.output
    table = table_of(postgres_schema)
    table.append([a_row(time=1_750_000_000_000_000), a_row(status="dead-lettered")])
    table.close(0.0)
    url = postgres_schema.replace("postgres@", "postgres:s3cret@")

    shown = pump("ledger", url, "--since", "all", "--json")

    document = json.loads(shown.stdout)
    assert document["rows"] == 2
    assert document["ledger"] == PostgresSettings.from_url(url).target
    assert "s3cret" not in shown.output
    assert "s3cret" not in pump("ledger", url, "--since", "all").output
