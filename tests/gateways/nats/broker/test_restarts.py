"""A server that is killed and started again on its store: nothing is lost (R51, T3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from gateways.nats import NatsGateway
from pump import App, Command, hybrid
from pump.backoff import Backoff
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConnectionFailed, InvalidReceipt, SessionLocked
from pump.message import Delivery
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message, ack, defer
from tests.brokers.nats_server import NatsServer

from .bench import PATIENTLY, Bench, gateway_at, ids, surely

pytestmark = pytest.mark.broker

SOON = timedelta(seconds=0.3)
SHORT_LEASE = timedelta(seconds=2)


@pytest.fixture
def server(own_nats: Callable[..., NatsServer]) -> NatsServer:
    return own_nats()


@pytest.fixture
async def bench(server: NatsServer) -> Bench:
    return Bench(server.url)


@pytest.fixture
async def gateway(bench: Bench) -> AsyncIterator[NatsGateway]:
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        yield gateway


async def restart(server: NatsServer) -> None:
    """Without a chance to write anything more."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def test_when_the_server_is_killed_then_every_send_it_confirmed_is_there(
    server: NatsServer, bench: Bench, gateway: NatsGateway
) -> None:
    """T3; and what was not confirmed, sent again, is there once (R39)."""
    producer = gateway.producer(bench.queue)
    sent = [a_message(id=f"m{n}", deduplication_id=f"m{n}") for n in range(200)]

    async def send_all() -> None:
        for start in range(0, len(sent), 10):
            batch = sent[start : start + 10]
            await surely(lambda batch=batch: producer.send(batch))  # type: ignore[misc]

    sending = asyncio.create_task(send_all())
    for _ in range(2):
        await SYSTEM_CLOCK.sleep(0.05)
        await restart(server)
    await sending

    assert ids(await bench.take_all()) == [each.id for each in sent]


async def test_when_the_server_is_killed_then_what_was_acked_does_not_come_again(
    server: NatsServer, bench: Bench, gateway: NatsGateway
) -> None:
    """R5: an ack that was confirmed."""
    await gateway.producer(bench.queue).send([a_message(id=str(n)) for n in range(20)])
    consumer = gateway.consumer(bench.subscription())
    received = await consumer.receive(max_count=10, wait_s=30)
    assert not await consumer.settle([ack(each) for each in received])

    await restart(server)

    assert ids(await surely(bench.take_all)) == [str(n) for n in range(10, 20)]


@pytest.mark.parametrize("is_missed", [False, True], ids=["at once", "after failed attempts"])
async def test_when_the_server_may_have_forgotten_a_lease_then_its_receipt_is_not_trusted(
    server: NatsServer, gateway: NatsGateway, monkeypatch: pytest.MonkeyPatch, is_missed: bool
) -> None:
    """R9, law 3: a server that is killed right after a delivery gives it to the next who asks,
    and would take the ack of both.
    """
    # However long this machine takes to kill it.
    monkeypatch.setattr("gateways.nats.gateway.FORGETFUL_S", 60.0)
    bench, fields = Bench(server.url), {"lease": SHORT_LEASE}
    await bench.make(gateway, **fields)
    await gateway.producer(bench.queue).send([a_message(id=str(n)) for n in range(20)])
    consumer = gateway.consumer(bench.subscription(**fields))
    first = await consumer.receive(max_count=20, wait_s=30)

    await asyncio.to_thread(server.kill)
    if is_missed:
        with pytest.raises(ConnectionFailed):
            await consumer.settle([ack(each) for each in first])
    await asyncio.to_thread(server.start)
    refusals = await surely(lambda: consumer.settle([ack(each) for each in first]))

    assert [type(each.error) for each in refusals] == [InvalidReceipt] * 20
    again: list[str] = []
    async with bench.gateway() as other:
        taker = other.consumer(bench.subscription(**fields))
        while len(again) < 20:
            received = await taker.receive(max_count=20, wait_s=30)
            assert not await taker.settle([ack(each) for each in received])
            again += ids(received)
    assert sorted(again) == sorted(ids(first))


async def test_when_the_server_is_killed_then_a_lease_it_wrote_down_lasts(
    server: NatsServer, bench: Bench, gateway: NatsGateway
) -> None:
    """R8: nobody else is given the message, and the receipt stays good."""
    await gateway.producer(bench.queue).send([a_message()])
    consumer = gateway.consumer(bench.subscription())
    [held] = await consumer.receive(max_count=1, wait_s=30)
    # Long enough for the server to have written it down.
    await SYSTEM_CLOCK.sleep(1.5)

    await restart(server)

    async with bench.gateway() as other:
        others = other.consumer(bench.subscription())
        assert not await others.receive(max_count=1, wait_s=0.3)
    assert not await surely(lambda: consumer.settle([ack(held)]))
    assert await bench.take_all() == []


async def test_when_the_server_is_killed_then_what_was_deferred_is_neither_early_nor_at_its_lease(
    server: NatsServer, bench: Bench, gateway: NatsGateway
) -> None:
    """R17: a server keeps whole seconds only, and forgets a deferral of the last moment."""
    delay_s = 5.0
    await gateway.producer(bench.queue).send([a_message(id=str(n)) for n in range(6)])
    consumer = gateway.consumer(bench.subscription())
    received: list[Delivery] = []
    while len(received) < 6:
        received += await consumer.receive(max_count=6, wait_s=30)
    due_at_s: dict[str, float] = {}
    for some in (received[:3], received[3:]):
        # Long enough for the server to have written down what was before.
        await SYSTEM_CLOCK.sleep(1.5)
        asked_at_s = SYSTEM_CLOCK.now_s()
        assert not await consumer.settle([defer(each, seconds=delay_s) for each in some])
        due_at_s |= {each.message.id: asked_at_s + delay_s for each in some}

    await restart(server)
    early: dict[str, float] = {}
    while due_at_s:
        found = await surely(lambda: consumer.receive(max_count=6, wait_s=0.5))
        for each in found:
            early[each.message.id] = due_at_s.pop(each.message.id) - SYSTEM_CLOCK.now_s()
            assert SYSTEM_CLOCK.now_s() < received[0].lease_expires_at_s, "only at its lease"

    assert max(early.values()) < 0.05


async def test_when_the_server_is_killed_then_a_delayed_message_still_comes(
    server: NatsServer, bench: Bench, gateway: NatsGateway
) -> None:
    await gateway.producer(bench.queue).send([a_message(id="later")], delay_s=1.5)

    await restart(server)
    consumer = gateway.consumer(bench.subscription())
    [delivery] = await surely(lambda: consumer.receive(max_count=1, wait_s=30))

    assert delivery.message.id == "later"


async def test_when_the_server_is_killed_then_a_session_stays_locked_and_in_order(
    server: NatsServer, bench: Bench
) -> None:
    """R40: the lock and what was acked are the server's to keep."""
    options = {"options": {"sessions": True}}
    async with bench.client(**options) as one, bench.client(**options) as other:
        await bench.send("a", "a1", "a2", "a3")
        session = await one.accept_session("a")
        [head] = await session.receive()
        await session.ack(head)
        held = await session.receive()

        await restart(server)

        with pytest.raises(SessionLocked):
            await surely(lambda: other.accept_session("a", wait=SOON))
        received = [*held]
        while len(received) < 2:
            received += await surely(lambda: session.receive(5, wait=PATIENTLY))
        for each in received:
            await surely(lambda each=each: session.ack(each))  # type: ignore[misc]
        await session.aclose()

    assert [head.message.id, *ids(received)] == ["a1", "a2", "a3"]


class Job(Command):
    number: int


async def test_when_the_server_restarts_then_the_pump_ends_every_message_by_itself(
    server: NatsServer, bench: Bench
) -> None:
    """Law 7; in the middle of sends, receives and settles, and nobody starts it again."""
    job_count = 400
    handled: set[int] = set()
    is_done = asyncio.Event()

    async def handle(job: Job) -> None:
        handled.add(job.number)
        if len(handled) == job_count:
            is_done.set()

    pause = timedelta(milliseconds=100)
    app = App(gateway_at(server.url), clock=SYSTEM_CLOCK, spill=MemorySpill())
    app.register(Job, handle)
    app.subscribe(
        bench.subscription(
            request=Job,
            lease=SHORT_LEASE,
            wait=timedelta(seconds=1),
            dead_letter_queue=f"{bench.queue}-dead",
            failure=hybrid(50, backoff=Backoff(initial=pause, maximum=pause)),
        )
    )

    async with app, app.pumping() as dispatcher:
        restarting = asyncio.create_task(restart_while_sending(server))
        for number in range(job_count):
            await surely(lambda number=number: app.post(Job(number)))  # type: ignore[misc]
        await restarting
        await is_done.wait()
        async with bench.gateway() as gateway:
            # What was forgotten while it was being handled comes again, and is acked then.
            while (await gateway.admin().stats(bench.queue)).visible:
                await SYSTEM_CLOCK.sleep(0.05)
            dead = await gateway.admin().stats(f"{bench.queue}-dead")
        restarts = dispatcher.performers[0].stats.restarts

    assert handled == set(range(job_count))
    assert (restarts, dead.visible) == (0, 0)


async def restart_while_sending(server: NatsServer) -> None:
    for _ in range(3):
        await SYSTEM_CLOCK.sleep(0.2)
        await restart(server)
