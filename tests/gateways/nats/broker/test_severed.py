"""Connections that are cut, or fall silent: nothing is lost, and work goes on (R51)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateways.nats import NatsGateway
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConnectionFailed, SendFailed
from pump.testing.builders import a_message, ack
from tests.brokers.nats_server import NatsServer
from tests.brokers.tcp_proxy import TcpProxy

from .bench import Bench, gateway_at, ids, surely

pytestmark = pytest.mark.broker

IMPATIENT_S = 6.0
"""How long is waited for an answer that does not come; others must come in time."""


@pytest.fixture
async def proxy(nats: NatsServer) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(nats.port) as proxy:
        yield proxy


@pytest.fixture
async def gateway(bench: Bench, proxy: TcpProxy) -> AsyncIterator[NatsGateway]:
    """A gateway whose connection the test may cut."""
    async with bench.at(proxy.port).gateway(request_timeout_s=IMPATIENT_S) as gateway:
        yield gateway


async def test_when_the_server_falls_silent_under_a_receive_then_it_ends_and_the_next_one_works(
    bench: Bench, gateway: NatsGateway, proxy: TcpProxy
) -> None:
    """What the silent connection was sent comes again when its lease ends, if at all."""
    consumer = gateway.consumer(bench.subscription())
    assert not await consumer.receive(max_count=1, wait_s=0.0)

    proxy.freeze()
    with pytest.raises(ConnectionFailed):
        await consumer.receive(max_count=1, wait_s=0.1)
    await bench.send(None, "next")

    assert ids(await consumer.receive(max_count=1, wait_s=30)) == ["next"]
    assert proxy.connection_count == 2


async def test_when_the_answers_to_acks_are_lost_then_acking_again_settles_them(
    bench: Bench, gateway: NatsGateway, proxy: TcpProxy
) -> None:
    """Law 1: the acks may have arrived, or not; and the connection is not trusted any more."""
    await bench.send(None, "a", "b", "c")
    consumer = gateway.consumer(bench.subscription())
    held = await consumer.receive(max_count=3, wait_s=30)

    proxy.freeze()
    with pytest.raises(ConnectionFailed):
        await consumer.settle([ack(each) for each in held])

    assert not await consumer.settle([ack(each) for each in held])
    assert proxy.connection_count == 2
    assert await bench.take_all() == []


async def test_when_the_answers_to_sends_are_lost_then_sending_again_makes_no_duplicate(
    bench: Bench, gateway: NatsGateway, proxy: TcpProxy
) -> None:
    """R39: the server remembers the de-duplication id (`Nats-Msg-Id`)."""
    producer = gateway.producer(bench.queue)
    batch = [a_message(id=f"m{n}", deduplication_id=f"m{n}") for n in range(300)]
    sending = asyncio.create_task(producer.send(batch))
    await until_stored(bench, 1)
    proxy.sever()
    await asyncio.gather(sending, return_exceptions=True)

    await surely(lambda: producer.send(batch))

    assert sorted(ids(await bench.take_all())) == sorted(each.id for each in batch)


async def test_when_the_connection_is_cut_while_many_are_sent_then_the_error_names_what_is_missing(
    bench: Bench, gateway: NatsGateway, proxy: TcpProxy
) -> None:
    """R58: whatever it does not name is stored, and need not be sent again."""
    batch = [a_message(id=f"m{n}") for n in range(3_000)]
    # Some 360 bytes a message, both ways: in the middle of the second part or the third.
    proxy.sever_after(400_000)

    with pytest.raises(SendFailed) as failed:
        await gateway.producer(bench.queue).send(batch)

    missing = {message_id for message_id, _ in failed.value.failures}
    stored = set(ids(await bench.take_all()))
    assert {each.id for each in batch} - missing <= stored


async def test_when_the_server_takes_no_more_bytes_then_a_send_ends_and_the_next_one_goes_through(
    bench: Bench, gateway: NatsGateway, proxy: TcpProxy
) -> None:
    """Neither the send nor the closing of the old connection waits for ever."""
    producer = gateway.producer(bench.queue)
    large = [a_message(b"x" * 500_000, deduplication_id=str(n)) for n in range(60)]

    proxy.freeze()
    with pytest.raises((ConnectionFailed, SendFailed)):
        await producer.send(large)
    await surely(lambda: producer.send(large))

    assert len(await bench.take_all()) == len(large)


async def test_when_the_answer_to_a_renewal_is_lost_then_the_session_goes_on(
    bench: Bench, proxy: TcpProxy
) -> None:
    """R40: the record may have been replaced, by nobody but itself."""
    bench = Bench(bench.url)
    subscription = bench.subscription(options={"sessions": True})
    async with bench.at(proxy.port).gateway(request_timeout_s=IMPATIENT_S) as gateway:
        await bench.make(gateway, options={"sessions": True})
        await bench.send("a", "a1", "a2")
        session = await gateway.accept_session(subscription, "a", wait_s=30)
        assert session is not None
        [first] = await session.receive(max_count=1, wait_s=30)

        for _ in range(3):
            renewing = asyncio.create_task(session.renew())
            await SYSTEM_CLOCK.sleep(0.0)
            proxy.sever()
            await asyncio.gather(renewing, return_exceptions=True)
        await surely(session.renew)

        assert not await surely(lambda: session.settle([ack(first)]))
        [second] = await surely(lambda: session.receive(max_count=1, wait_s=30))
        assert not await session.settle([ack(second)])
        await session.aclose()

    assert [first.message.id, second.message.id] == ["a1", "a2"]


async def test_when_a_gateway_is_closed_while_it_connects_then_who_waits_is_told(
    nats: NatsServer,
) -> None:
    """Law 6: nobody is cancelled who was not asked to stop."""
    async with TcpProxy(nats.port) as proxy:
        proxy.shut()
        gateway = gateway_at(f"nats://127.0.0.1:{proxy.port}")
        with pytest.raises(ConnectionFailed):
            await gateway.open()
        sending = asyncio.create_task(gateway.producer("orders").send([a_message()]))
        await SYSTEM_CLOCK.sleep(0.0)

        await gateway.aclose()

        with pytest.raises(ConnectionFailed):
            await sending


async def until_stored(bench: Bench, count: int) -> None:
    """Return when the queue has so many messages."""
    async with bench.gateway() as gateway:
        while (await gateway.admin().stats(bench.queue)).visible < count:
            await SYSTEM_CLOCK.sleep(0.0)
