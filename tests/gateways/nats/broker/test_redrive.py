"""Redrive where something is in its way: nothing is lost, and it is done later (R20, T5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from gateways.nats.link import Link
from pump.headers import ORIGINAL_TOPIC, REJECTION_REASON
from pump.testing.builders import a_message, ack, defer
from tests.brokers.nats_server import NatsServer

from .bench import Bench, ids

pytestmark = pytest.mark.broker

SHORT_LEASE = timedelta(seconds=3)


async def test_when_the_dead_letter_queue_is_missing_then_the_message_waits_for_it(
    nats: NatsServer,
) -> None:
    """R20: nobody is given it again meanwhile, and it is not lost."""
    bench, dead = Bench(nats.url), Bench(nats.url)
    fields = {"dead_letter_queue": dead.queue, "max_receive_count": 1, "lease": SHORT_LEASE}
    async with bench.gateway() as gateway:
        await bench.make(gateway, **fields)
        await gateway._api.ask(f"STREAM.DELETE.{dead.queue}")
        await gateway.producer(bench.queue).send([a_message(id="poison", group="g")])
        consumer = gateway.consumer(bench.subscription(**fields))
        [received] = await consumer.receive(max_count=1, wait_s=30)

        await consumer.settle([defer(received)])
        assert not await consumer.receive(max_count=1, wait_s=2.0)
        await dead.make(gateway)
        assert not await consumer.receive(max_count=1, wait_s=8.0)

        [letter] = await dead.take_all()
        assert letter.message.id == "poison"
        assert letter.message.headers[ORIGINAL_TOPIC] == bench.queue
        assert REJECTION_REASON in letter.message.headers
        stats = await gateway.admin().stats(bench.queue)
        assert (stats.visible, stats.in_flight) == (0, 0)


async def test_when_the_limit_is_only_in_the_streams_metadata_then_consumers_go_by_it(
    nats: NatsServer,
) -> None:
    """R20: also one whose subscription says nothing of it."""
    bench, dead = Bench(nats.url), Bench(nats.url)
    async with bench.gateway() as gateway:
        await bench.make(gateway, dead_letter_queue=dead.queue, max_receive_count=2)
        await gateway.producer(bench.queue).send([a_message(id="poison"), a_message(id="good")])
        consumer = gateway.consumer(bench.subscription())

        for _ in range(2):
            received = await consumer.receive(max_count=2, wait_s=30)
            poison = [each for each in received if each.message.id == "poison"]
            good = [each for each in received if each.message.id == "good"]
            settlements = [*map(defer, poison), *map(ack, good)]
            assert not await consumer.settle(settlements)

        assert not await consumer.receive(max_count=2, wait_s=0.0)
    assert ids(await dead.take_all()) == ["poison"]


async def test_when_a_queue_is_made_anew_then_its_dead_letters_are_not_taken_for_the_old_ones(
    nats: NatsServer,
) -> None:
    """R20, T10: places in a stream begin at one again, and the dead-letter queue remembers."""
    bench, dead = Bench(nats.url), Bench(nats.url)
    fields = {"dead_letter_queue": dead.queue, "max_receive_count": 1}
    async with bench.gateway() as gateway:
        for id_ in ("first", "second"):
            await bench.make(gateway, **fields)
            await gateway.producer(bench.queue).send([a_message(id=id_)])
            consumer = gateway.consumer(bench.subscription(**fields))
            [received] = await consumer.receive(max_count=1, wait_s=30)
            assert not await consumer.settle([defer(received)])
            await gateway._api.ask(f"STREAM.DELETE.{bench.queue}")

    assert ids(await dead.take_all()) == ["first", "second"]


async def test_when_a_dead_letter_is_too_large_then_only_that_one_fails(
    own_nats: Callable[..., NatsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 7: for a copy over its `max_payload` the server closes the connection."""
    server = own_nats(config="max_payload: 4096")
    lost: list[Link] = []
    closed = Link.closed

    async def notice(link: Link) -> None:
        lost.append(link)
        await closed(link)

    monkeypatch.setattr(Link, "closed", notice)
    bench, dead = Bench(server.url), Bench(server.url)
    fields = {"dead_letter_queue": dead.queue, "max_receive_count": 1}
    async with bench.gateway() as gateway:
        await bench.make(gateway, **fields)
        await gateway.producer(bench.queue).send([a_message(b"x" * 3_900, id="large")])
        consumer = gateway.consumer(bench.subscription(**fields))
        [received] = await consumer.receive(max_count=1, wait_s=30)

        assert not await consumer.settle([defer(received)])
        await gateway.producer(bench.queue).send([a_message(id="small")])
        assert ids(await consumer.receive(max_count=1, wait_s=30)) == ["small"]

        assert lost == []
        assert (await gateway.admin().stats(dead.queue)).visible == 0
