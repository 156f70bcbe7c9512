"""What a PostgreSQL server, and the way to it, do to an outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from pump.clock import SYSTEM_CLOCK
from pump.errors import AccessDenied, ConfigurationError
from pump.message import Message
from pump.outbox import PostgresOutbox, postgres as module, relay as relay_module
from pump.postgres.settings import PostgresSettings
from pump.subscription import MakeChannels
from tests.brokers.postgres_server import PostgresServer
from tests.brokers.tcp_proxy import TcpProxy
from tests.outbox.conftest import PostgresPlace
from tests.outbox.rig import (
    Order,
    RecordingGateway,
    an_app,
    relay_all,
    relaying,
    until,
    until_empty,
)

pytestmark = pytest.mark.broker


def has_sent(gateway: RecordingGateway, count: int) -> bool:
    return len(gateway.sent) == count


async def commit(place: PostgresPlace, gateway: RecordingGateway, *numbers: int) -> None:
    """Commit orders, as another program does."""
    async with an_app(gateway, place.outbox()) as app, place.transaction() as transaction:
        await app.post_all([Order(number=each) for each in numbers], transaction=transaction)


async def test_when_the_answer_to_a_commit_is_lost_then_the_message_shares_the_rows_fate(
    postgres_place: PostgresPlace,
) -> None:
    """R79."""
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)

    async with app, TcpProxy(postgres_place.server.port) as proxy, relaying(app):
        url = postgres_place.server.url(port=proxy.port)
        connection = await psycopg.AsyncConnection.connect(url)
        await connection.execute(postgres_place.insert().encode())
        await app.post(Order(number=1), transaction=connection)
        proxy.loses_answers = True
        committing = asyncio.create_task(connection.commit())
        await until(lambda: postgres_place.notes() == ["mine"])
        proxy.sever()
        with pytest.raises(psycopg.OperationalError):
            await committing
        await connection.close()
        await until_empty(outbox)

    assert gateway.numbers() == [1]


async def test_when_a_relay_loses_its_connection_anywhere_then_nothing_is_lost(
    postgres_place: PostgresPlace,
) -> None:
    """After more and more bytes, from the first of its connection to those of the commit."""
    await commit(postgres_place, RecordingGateway())

    for byte_count in range(0, 3_200, 100):
        gateway = RecordingGateway()
        await commit(postgres_place, gateway, 1, 2)
        async with TcpProxy(postgres_place.server.port) as proxy:
            url = postgres_place.url(port=proxy.port)
            app = an_app(gateway, PostgresOutbox(url, make=MakeChannels.ASSUME))
            proxy.sever_after(byte_count)
            async with app, relaying(app):
                await until(lambda: postgres_place.execute("SELECT 1 FROM @outbox") == [])
        assert gateway.numbers() in ([1, 2], [1, 2, 1, 2])
        ids = {each.message.id: each.message.deduplication_id for each in gateway.sent}
        assert len(ids) == 2


async def test_when_a_relay_is_frozen_then_another_one_takes_over(
    postgres_place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R79."""
    monkeypatch.setattr(module, "_FROZEN_S", 1)
    frozen, alive = RecordingGateway(), RecordingGateway()
    sending, thawed = asyncio.Event(), asyncio.Event()

    async def freeze(queue: str, messages: Sequence[Message]) -> None:
        sending.set()
        await thawed.wait()

    frozen.refuse = freeze
    await commit(postgres_place, frozen, 1)
    first, second = (an_app(each, postgres_place.outbox()) for each in (frozen, alive))

    async with first, second, relaying(first):
        await sending.wait()
        async with relaying(second):
            await until(lambda: alive.numbers() == [1])
        thawed.set()
        assert second.outbox is not None
        await until_empty(second.outbox)

    assert frozen.numbers() == [1]
    assert frozen.sent[0].message.deduplication_id == alive.sent[0].message.deduplication_id


async def test_when_all_calls_of_a_batch_take_too_long_then_it_comes_to_an_end(
    postgres_place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes the relay for frozen before the last of them."""
    monkeypatch.setattr(module, "_FROZEN_S", 1)
    monkeypatch.setattr(relay_module, "BATCH_S", 0.2)
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)

    async def be_slow(queue: str, messages: Sequence[Message]) -> None:
        await SYSTEM_CLOCK.sleep(0.1)

    gateway.refuse = be_slow
    async with app:
        async with postgres_place.transaction() as transaction:
            for number in range(20):
                delay = timedelta(minutes=number)
                await app.post(Order(number=number), transaction=transaction, delay=delay)
        async with relaying(app):
            await until_empty(outbox)

    assert gateway.numbers() == list(range(20))


async def test_when_the_server_refuses_to_delete_then_each_message_is_sent_once(
    postgres_place: PostgresPlace,
) -> None:
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)
    await commit(postgres_place, gateway, 1, 2)
    postgres_place.execute(
        "CREATE FUNCTION @refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END$$"
    )
    postgres_place.execute(
        "CREATE TRIGGER refuse BEFORE DELETE ON @outbox EXECUTE FUNCTION @refuse()"
    )

    async with app, relaying(app):
        await until(lambda: outbox._database.counts["remove in the outbox"] >= 3)
        postgres_place.execute("DROP TRIGGER refuse ON @outbox")
        await until_empty(outbox)

    assert gateway.numbers() == [1, 2]


async def test_when_the_server_restarts_then_the_relay_goes_on(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    """R79."""
    server = own_postgres(is_safe=True)
    place = PostgresPlace(server)
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox())

    async with app, relaying(app):
        await commit(place, gateway, 1)
        await until(lambda: gateway.numbers() == [1])
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await commit(place, gateway, 2)
        await until(lambda: gateway.numbers() == [1, 2])
        await until(lambda: outbox.hears)


async def test_when_there_is_a_pooler_then_rows_are_found_by_looking(
    postgres_place: PostgresPlace, pgbouncer: int
) -> None:
    gateway = RecordingGateway()
    settings = PostgresSettings.from_url(postgres_place.url(port=pgbouncer))
    outboxes = [PostgresOutbox(settings), PostgresOutbox(settings)]
    first, second = (an_app(gateway, each) for each in outboxes)

    async with first, second, relaying(first), relaying(second):
        for number in range(20):
            url = postgres_place.server.url(port=pgbouncer)
            connecting = psycopg.AsyncConnection.connect(url, prepare_threshold=None)
            async with await connecting as connection:
                await first.post(Order(number=number), transaction=connection, group="g")
        await until_empty(outboxes[0])
        assert not outboxes[0].hears

    assert gateway.numbers() == list(range(20))


async def test_when_nothing_is_told_then_rows_are_found_by_looking(
    postgres_place: PostgresPlace,
) -> None:
    gateway = RecordingGateway()
    quiet = an_app(gateway, outbox := PostgresOutbox(postgres_place.url(), notify=False))

    async with quiet, relaying(quiet):
        async with postgres_place.transaction() as transaction:
            await quiet.post(Order(number=1), transaction=transaction)
        await until(lambda: gateway.numbers() == [1])
        assert not outbox.hears


async def test_when_it_does_not_notify_then_its_transaction_can_be_prepared(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    place = PostgresPlace(own_postgres("max_prepared_transactions=5"))
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := PostgresOutbox(place.url(), notify=False))

    async with app, await psycopg.AsyncConnection.connect(place.server.url()) as connection:
        await connection.tpc_begin("tx")
        await app.post(Order(number=1), transaction=connection)
        await connection.tpc_prepare()
        assert await outbox.stats() == []
        await connection.tpc_commit()
    await relay_all(app)

    assert gateway.numbers() == [1]


async def test_when_a_role_may_only_insert_then_it_can_post_and_nothing_else(
    postgres_place: PostgresPlace,
) -> None:
    gateway = RecordingGateway()
    await commit(postgres_place, gateway)
    role = f"poster_{postgres_place.schema}"
    postgres_place.execute(f'CREATE ROLE "{role}" LOGIN')
    postgres_place.execute(f'GRANT USAGE ON SCHEMA "{postgres_place.schema}" TO "{role}"')
    postgres_place.execute(f'GRANT INSERT ON @outbox TO "{role}"')

    try:
        url = postgres_place.url(user=role)
        posting = an_app(gateway, PostgresOutbox(url, make=MakeChannels.ASSUME))
        async with posting:
            as_poster = psycopg.AsyncConnection.connect(postgres_place.server.url(user=role))
            async with await as_poster as connection:
                await posting.post(Order(number=1), transaction=connection)
            assert posting.outbox is not None
            with pytest.raises(AccessDenied):
                await posting.outbox.stats()
        await relay_all(an_app(gateway, postgres_place.outbox()))
    finally:
        postgres_place.execute(f'DROP OWNED BY "{role}"')
        postgres_place.execute(f'DROP ROLE "{role}"')

    assert gateway.numbers() == [1]


async def test_when_there_are_no_tables_then_checking_says_what_to_do(
    postgres_place: PostgresPlace,
) -> None:
    app = an_app(
        RecordingGateway(), PostgresOutbox(postgres_place.url(), make=MakeChannels.VALIDATE)
    )

    with pytest.raises(ConfigurationError, match=r"MakeChannels\.CREATE"):
        async with app:
            pass
    assert postgres_place.execute(
        "SELECT count(*) FROM pg_tables WHERE schemaname = ?", postgres_place.schema
    ) == [(1,)]


async def test_when_many_relays_stand_by_then_one_wakes_for_a_post(
    postgres_place: PostgresPlace,
) -> None:
    """Told of each of fifty posts, eight relays do not all ask for each."""
    gateway = RecordingGateway()
    outboxes = [PostgresOutbox(postgres_place.url()) for _ in range(8)]
    apps = [an_app(gateway, each) for each in outboxes]
    relays = []

    try:
        for app in apps:
            await app.__aenter__()
            relays.append((relay := app.relay(), asyncio.create_task(relay.run())))
        await until(lambda: all(each.hears for each in outboxes))
        for number in range(50):
            await commit(postgres_place, gateway, number)
            await until(partial(has_sent, gateway, number + 1))
        taken = sum(each._database.counts["take in the outbox"] for each in outboxes)
    finally:
        for relay, running in relays:
            relay.drain()
            await running
        for app in apps:
            await app.__aexit__(None, None, None)

    assert gateway.numbers() == list(range(50))
    assert taken < 50 * 8


async def test_when_a_relay_drains_then_a_destination_that_waits_for_its_turn_takes_none(
    postgres_place: PostgresPlace,
) -> None:
    gateway = RecordingGateway()
    hung: set[str] = set()
    answered = asyncio.Event()

    async def hang(queue: str, messages: Sequence[Message]) -> None:
        hung.add(queue)
        await answered.wait()

    gateway.refuse = hang
    app = an_app(gateway, outbox := postgres_place.outbox())
    async with app:
        async with postgres_place.transaction() as transaction:
            for number in range(8):
                order = Order(number=number)
                await app.post(order, transaction=transaction, queue=f"hung{number}")
        async with relaying(app) as relay:
            await until(lambda: len(hung) == outbox.max_taken - 1)
            relay.drain()
            answered.set()
        waiting = sum(each.waiting for each in await outbox.stats())

    assert waiting == 8 - len(gateway.sent) == 8 - (outbox.max_taken - 1)


async def test_when_a_listener_hears_nothing_then_looking_replaces_it(
    postgres_place: PostgresPlace,
) -> None:
    gateway = RecordingGateway()
    settings = PostgresSettings.from_url(postgres_place.url())
    outbox = PostgresOutbox(settings)
    app = an_app(gateway, outbox)

    async with app, relaying(app):
        await until(lambda: outbox.hears)
        postgres_place.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE ?",
            f'LISTEN "{postgres_place.schema}_outbox"',
        )
        await commit(postgres_place, gateway, 1)
        await until(lambda: gateway.numbers() == [1])
        await until(lambda: outbox.hears)
