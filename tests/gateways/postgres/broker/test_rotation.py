"""Tables are left when they are large and truncated when empty, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import psycopg
import pytest

from gateways.postgres import PostgresGateway, consumer as consumer_module
from gateways.postgres.schema import script
from pump.clock import SYSTEM_CLOCK
from pump.errors import PumpError
from pump.message import Delivery, Message
from pump.postgres.schema import named
from pump.testing.builders import ack, defer
from tests.brokers.postgres_server import PostgresServer

from .bench import PATIENCE_S, Bench, ids, surely

pytestmark = [pytest.mark.broker, pytest.mark.asyncio]

NOW = "SELECT setval('@.next_look', 0);"
"""It makes a pause after each time."""
AT_ONCE = f"{NOW} SELECT @.rotate(0, 0, 1000)"
"""A table with anything in it is large."""


@pytest.fixture(autouse=True)
def no_rotation_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "ROTATE_EVERY_S", 3600.0)


def parts_of(bench: Bench) -> dict[str, int]:
    """The table that each body is in."""
    found = bench.execute("SELECT convert_from(body, 'utf8'), part FROM @.message")
    return dict(found)


def sizes_of(bench: Bench) -> list[int]:
    """Bytes of each table."""
    sizes = "SELECT pg_relation_size(format('@.message_%%s', part)::regclass)"
    return [size for (size,) in bench.execute(f"{sizes} FROM generate_series(0, 3) AS part", [])]


def a_named(name: str, **fields: object) -> Message:
    return Message(body=name.encode(), id=name, **fields)  # type: ignore[arg-type]


async def receive(gateway: PostgresGateway, bench: Bench, **fields: object) -> list[Delivery]:
    consumer = gateway.consumer(bench.subscription(**fields))
    return list(await consumer.receive(max_count=1_000, wait_s=0.0))


async def test_when_a_table_is_empty_then_its_space_is_given_back_beside_an_old_transaction(
    bench: Bench,
) -> None:
    """What vacuum may not do."""
    async with bench.gateway() as gateway:
        subscription = await bench.make(gateway)
        with psycopg.connect(bench.server.url()) as old:
            old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            old.execute("SELECT 1")
            for number in range(6):
                await gateway.producer(bench.queue).send(
                    [a_named(f"{number}-{each}") for each in range(200)]
                )
                received = await receive(gateway, bench)
                refused = await gateway.consumer(subscription).settle(
                    [ack(each) for each in received]
                )
                assert (len(received), refused) == (200, [])
                bench.execute(AT_ONCE)
                bench.execute("VACUUM @.message_1, @.message_2, @.message_3")
                assert sum(size > 0 for size in sizes_of(bench)) <= 2


async def test_when_few_messages_are_left_in_a_table_then_they_move_and_keep_their_place(
    bench: Bench,
) -> None:
    async with bench.gateway() as gateway:
        subscription = await bench.make(gateway)
        producer = gateway.producer(bench.queue)
        await producer.send(
            [a_named("leased"), a_named("again"), a_named("fresh"), a_named("gone")]
            + [a_named(f"g{each}", group="g") for each in range(3)]
        )
        held = {each.message.id: each for each in await receive(gateway, bench)}
        port = gateway.consumer(subscription)
        await port.settle([defer(held[name]) for name in ("again", "fresh", "g0", "g1", "g2")])
        await port.settle([ack(held["gone"])])
        await producer.send([a_named("delayed")], delay_s=3600.0)
        bench.execute(AT_ONCE)
        await producer.send([a_named("second")])
        before = parts_of(bench)
        bench.execute("SELECT @.move_rest(%s, 100)", [before["leased"]])
        after = parts_of(bench)

        assert before["again"] == before["leased"] == before["delayed"] != before["second"]
        assert {after[name] for name in ("again", "fresh", "g0", "g1", "g2", "delayed")} == {0}
        assert (after["leased"], after["second"]) == (before["leased"], before["second"])
        received = await receive(gateway, bench)
        assert ids(received)[:5] == ["again", "fresh", "g0", "g1", "g2"]
        assert not await port.settle([ack(held["leased"]), *map(ack, received)])
    assert set(parts_of(bench)) == {"delayed"}


async def test_when_no_table_is_free_then_the_rest_of_one_moves(
    bench: Bench,
) -> None:
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        names = [f"{number:02}" for number in range(12)]
        for name in names:
            await bench.send(gateway, name)
            await gateway.producer(bench.queue).send([Message(body=os.urandom(60_000))])
            bench.execute(AT_ONCE)

        assert sizes_of(bench)[0] > 0
        received = await receive(gateway, bench)
        assert [each for each in ids(received) if each in names] == names


async def test_when_a_sender_has_not_committed_then_its_table_is_not_truncated(
    bench: Bench,
) -> None:
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        with psycopg.connect(bench.server.url()) as late:
            send = named(
                "SELECT @.send('orders', 0, ARRAY[NULL], ARRAY['late'::bytea])", bench.schema
            )
            late.execute(send.encode())
            for _ in range(3):
                bench.execute(AT_ONCE)
            late.commit()

        assert [each.message.body for each in await receive(gateway, bench)] == [b"late"]


async def test_when_a_table_is_being_read_then_rotating_gives_way(bench: Bench) -> None:
    async with bench.gateway() as gateway:
        subscription = await bench.make(gateway)
        await bench.send(gateway, "a")
        await gateway.consumer(subscription).settle(
            [ack(each) for each in await receive(gateway, bench)]
        )
        bench.execute(f"{NOW} SELECT @.rotate(0, 0, 5)")
        with psycopg.connect(bench.server.url()) as reader:
            reader.execute(named("SELECT count(*) FROM @.message", bench.schema).encode())
            bench.execute(f"{NOW} SELECT @.rotate(0, 0, 5)")
            assert sizes_of(bench)[1] > 0
            await bench.send(gateway, "b")
            assert ids(await receive(gateway, bench)) == ["b"]

        bench.execute(AT_ONCE)
        assert sizes_of(bench)[1] == 0


async def test_when_there_are_messages_of_version_1_then_they_keep_their_state_and_receipts(
    bench: Bench,
) -> None:
    made = f'CREATE SCHEMA "{bench.schema}"; {named(script("tables.sql"), bench.schema)}'
    bench.execute(f"{made} UPDATE @.version SET number = 1".replace("%", "%%"), [])
    role = f"r_{bench.schema}"
    bench.execute(
        f'CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA "{bench.schema}" TO {role};'
        f"GRANT SELECT, INSERT, UPDATE ON @.message TO {role};"
        f"GRANT SELECT ON @.queue, @.lease TO {role};"
        "INSERT INTO @.queue (name) VALUES ('orders');"
        "INSERT INTO @.lease (queue, due_at) VALUES (1, now() + interval '1 hour');"
        "INSERT INTO @.message"
        " (queue, state, attempt, delivery, lease, sent_at, due_at, lane, body)"
        " VALUES (1, 0, 0, 0, NULL, now(), NULL, NULL, 'fresh'),"
        " (1, 1, 1, 1, NULL, now(), NULL, NULL, 'again'),"
        " (1, 3, 1, 1, 1, now(), NULL, NULL, 'leased'),"
        " (1, 2, 0, 0, NULL, now(), now() + interval '1 hour', NULL, 'delayed'),"
        " (1, 1, 0, 0, NULL, now(), NULL, 'gx', 'head'),"
        " (1, 4, 0, 0, NULL, now(), NULL, 'gx', 'behind');"
    )
    try:
        async with bench.gateway() as gateway, bench.gateway(as_user=role) as sender:
            subscription = await bench.make(gateway)
            leased = Delivery(
                message=Message(body=b"leased"),
                queue=bench.queue,
                receipt="3.1.1",
                attempt=1,
                lease_expires_at_s=SYSTEM_CLOCK.now_s() + PATIENCE_S,
            )
            assert not await gateway.consumer(subscription).settle([ack(leased)])
            await sender.producer(bench.queue).send([a_named("new")])
            received = await receive(gateway, bench)
            assert not await gateway.consumer(subscription).settle([ack(each) for each in received])

        bodies = [each.message.body.decode() for each in received]
        assert bodies == ["fresh", "again", "head", "behind", "new"]
        assert parts_of(bench) == {"delayed": 0}
    finally:
        bench.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("group_count", [0, 7])
async def test_when_tables_rotate_and_the_server_is_killed_in_mid_work_then_nothing_is_lost(
    own_postgres: Callable[..., PostgresServer], group_count: int
) -> None:
    """Groups stay in order, what an ack confirmed does not come again."""
    server = own_postgres(is_safe=True)
    bench = Bench(server)
    sent: list[str] = []
    acked: list[str] = []
    handled: dict[str | None, list[int]] = defaultdict(list)
    is_over = asyncio.Event()

    async with bench.gateway() as gateway:
        subscription = await bench.make(gateway)

        async def produce() -> None:
            number = 0
            while not is_over.is_set():
                if len(sent) > len(acked) + 500:
                    await SYSTEM_CLOCK.sleep(0.01)
                    continue
                batch = [
                    a_named(f"{each:09}", group=f"g{each % group_count}" if group_count else None)
                    for each in range(number, number + 20)
                ]
                number += 20
                try:
                    await gateway.producer(bench.queue).send(batch)
                except PumpError:
                    await SYSTEM_CLOCK.sleep(0.02)
                else:
                    sent.extend(each.id for each in batch)

        async def consume() -> None:
            consumer = gateway.consumer(subscription)
            while not is_over.is_set():
                received = await surely(lambda: consumer.receive(max_count=50, wait_s=0.1))
                # A few come back, into a table that may have been left since.
                back = [each for each in received if each.attempt == 1 and each.receipt[-1] == "7"]
                rest = [each for each in received if each not in back]
                for each in rest:
                    handled[each.message.group].append(int(each.message.id))
                settled = [*map(ack, rest), *(defer(each, seconds=0.05) for each in back)]
                refused = await surely(partial(consumer.settle, settled))
                lost = {refusal.delivery for refusal in refused}
                acked.extend(each.message.id for each in rest if each not in lost)

        async def rotate() -> None:
            while not is_over.is_set():
                try:
                    await asyncio.to_thread(bench.execute, f"{NOW} SELECT @.rotate(20000, 0, 20)")
                except psycopg.Error:
                    await SYSTEM_CLOCK.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            for work in (produce, consume, consume, rotate):
                group.create_task(work())
            for _ in range(3):
                before = len(acked)
                while len(acked) < before + 1_000:
                    await SYSTEM_CLOCK.sleep(0.01)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            is_over.set()
        # What was leased when the server died comes when its lease ends: here, at once.
        bench.execute("UPDATE @.lease SET due_at = clock_timestamp()")
        bench.execute("UPDATE @.message SET due_at = clock_timestamp() WHERE state = 2")
        consumer = gateway.consumer(subscription)
        while received := await surely(lambda: consumer.receive(max_count=1_000, wait_s=0.0)):
            assert not await consumer.settle([ack(each) for each in received])
            acked.extend(ids(received))

    assert set(sent) <= set(acked)
    assert len(acked) == len(set(acked))
    if group_count:
        first_times = {name: list(dict.fromkeys(order)) for name, order in handled.items()}
        assert all(order == sorted(order) for order in first_times.values())
