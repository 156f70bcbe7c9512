"""The schema is made once, brought forward, checked, and never touched by who is older."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import attrs
import pytest

from gateways.postgres import schema as schema_module
from pump.errors import AccessDenied, ConfigurationError, QueueNotFound
from pump.message import Message
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.builders import a_message, ack

from .bench import PATIENCE_S, Bench, ids

PAGE = Path(__file__).resolve().parents[4] / "docs" / "gateways-postgres.md"

pytestmark = [pytest.mark.broker, pytest.mark.asyncio]


async def test_when_nothing_is_there_then_it_is_said_and_nothing_made(bench: Bench) -> None:
    async with bench.gateway() as gateway:
        with pytest.raises(QueueNotFound):
            await gateway.producer("orders").send([a_message()])
        with pytest.raises(QueueNotFound):
            await gateway.admin().ensure(QueueSpec(name="orders"), MakeChannels.VALIDATE)
        listed = await gateway.admin().queues()

    assert list(listed) == []
    assert bench.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [bench.schema]) == []


async def test_when_many_make_it_at_once_then_it_is_made_once(bench: Bench) -> None:
    async def make(number: int) -> None:
        async with bench.gateway(max_connections=1) as gateway:
            await gateway.admin().ensure(QueueSpec(name=f"q{number}"), MakeChannels.CREATE)

    await asyncio.gather(*map(make, range(12)))

    assert bench.execute("SELECT count(*) FROM @.queue") == [(12,)]
    assert bench.execute("SELECT number FROM @.version") == [(schema_module.VERSION,)]


async def test_when_it_is_of_an_older_version_then_it_is_brought_forward_with_what_is_in_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.gateway() as gateway:
        subscription = await bench.make(gateway)
        await bench.send(gateway, "from before")
    steps = {"step": "ALTER TABLE @.message ADD COLUMN colour text;"}
    read = schema_module.script
    newer_queues = attrs.evolve(schema_module.QUEUES, version=schema_module.VERSION + 1)
    monkeypatch.setattr("gateways.postgres.gateway.QUEUES", newer_queues)
    monkeypatch.setattr(schema_module, "TABLES", (*schema_module.TABLES, "step"))
    monkeypatch.setattr(schema_module, "script", lambda name: steps.get(name) or read(name))

    async with bench.gateway() as newer:
        with pytest.raises(ConfigurationError, match=f"version {schema_module.VERSION}"):
            await newer.admin().ensure(QueueSpec(name="orders"), MakeChannels.VALIDATE)
        await bench.make(newer)
        received = await newer.consumer(subscription).receive(max_count=10, wait_s=0.0)

    assert ids(received) == ["from before"]
    assert bench.execute("SELECT number FROM @.version") == [(schema_module.VERSION + 1,)]
    assert bench.execute("SELECT colour FROM @.message") == [(None,)]


async def test_when_it_is_of_a_newer_version_then_it_is_left_alone(bench: Bench) -> None:
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        bench.execute("UPDATE @.version SET number = 99")

        with pytest.raises(ConfigurationError, match="newer"):
            await bench.make(gateway)

    assert bench.execute("SELECT number FROM @.version") == [(99,)]


async def test_when_a_queue_gets_another_order_then_what_is_in_it_follows(bench: Bench) -> None:
    async with bench.gateway() as gateway:
        subscription = await bench.make(gateway)
        await bench.send(gateway, "a", "b", "c")
        await bench.make(gateway, ordering_guarantee=True)
        consumer = gateway.consumer(subscription)

        [head] = await consumer.receive(max_count=10, wait_s=0.0)
        await consumer.settle([ack(head)])
        strictly = [head, *await consumer.receive(max_count=10, wait_s=0.0)]
        await consumer.settle([ack(strictly[-1])])
        await bench.make(gateway)
        await bench.send(gateway, "d")
        freely = await consumer.receive(max_count=10, wait_s=0.0)

    assert ids(strictly) == ["a", "b"]
    assert ids(freely) == ["c", "d"]


def grants_of(bench: Bench) -> tuple[str, str, str]:
    """The names of two roles of the test's own, and what the page has for such."""
    found = re.search(r"<!-- roles -->\n```sql\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found is not None
    producer, consumer = f"p_{bench.schema}", f"c_{bench.schema}"
    grants = found[1].replace("shop_producer", producer).replace("shop_consumer", consumer)
    return producer, consumer, re.sub(r"\bpumphouse\b", bench.schema, grants)


async def test_when_roles_have_only_what_they_need_then_each_does_its_part_and_no_more(
    bench: Bench,
) -> None:
    producer, consumer_role, grants = grants_of(bench)
    async with bench.gateway() as owner:
        subscription = await bench.make(
            owner, dead_letter_queue="dead", max_receive_count=5, options={}
        )
    for name in (producer, consumer_role):
        bench.execute(f"CREATE ROLE {name} LOGIN")
    bench.execute(grants)
    try:
        async with (
            bench.gateway(as_user=producer) as producing,
            bench.gateway(as_user=consumer_role) as consuming,
        ):
            # Queues that are there as they should be need no right to make any.
            for gateway in (producing, consuming):
                await bench.make(gateway, dead_letter_queue="dead", max_receive_count=5)
            await producing.producer(bench.queue).send(
                [Message(body=b"", id="a", group="g", deduplication_id="a"), a_message(id="b")]
            )
            consumer = consuming.consumer(subscription)
            received = await consumer.receive(max_count=2, wait_s=PATIENCE_S)
            assert not await consumer.settle([ack(each) for each in received])
            session = await consuming.accept_session(subscription, "g", wait_s=0.0)
            assert session is not None
            await session.aclose()

            with pytest.raises(AccessDenied):
                await consuming.producer(bench.queue).send([a_message()])
            await bench.send(producing, "c")
            with pytest.raises(AccessDenied):
                await producing.consumer(subscription).receive(max_count=1, wait_s=0.0)
            with pytest.raises(AccessDenied):
                await consuming.admin().ensure(QueueSpec(name="more"), MakeChannels.CREATE)
        assert sorted(ids(received)) == ["a", "b"]
    finally:
        for name in (producer, consumer_role):
            bench.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
