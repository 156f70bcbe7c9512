"""An outbox beside the other parts of an app: pumps, handlers, encryption, traces."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import aiosqlite
import attrs
import pytest

from gateways.memory import MemoryGateway
from pump import App, Subscription, current_context
from pump.clock import yield_to_loop
from pump.crypto import Encryption, Key, KeyRing
from pump.errors import ConnectionFailed, MessageTooLarge, UnsupportedOperation
from pump.message import Message
from pump.observability import vocabulary
from pump.observability.metrics import Metrics
from pump.observability.otel import OpenTelemetry
from pump.outbox import SqliteOutbox
from pump.ports import MAGIC, ProducerPort
from pump.stores.packing import unpack
from pump.testing.virtual_clock import VirtualClock
from tests.observability.otel.shop import Spans, id_of, linked_from, trace_of

from .conftest import SqlitePlace
from .rig import Order, RecordingGateway, an_app, relay_all, until, until_empty


async def write(place: SqlitePlace, app: App, *numbers: int) -> None:
    async with place.transaction() as transaction:
        await app.post_all([Order(number=each) for each in numbers], transaction=transaction)


async def test_when_an_app_pumps_then_it_relays_too(sqlite_place: SqlitePlace) -> None:
    """A handler's own post, in a transaction of its own, is handled in turn."""
    handled: list[int] = []
    app = App("memory://", outbox=sqlite_place.outbox())

    async def handle(order: Order) -> None:
        handled.append(order.number)
        context = current_context()
        assert context is not None
        assert context.processor is not None
        if order.number < 3:
            async with sqlite_place.transaction() as transaction:
                following = Order(number=order.number + 1)
                await context.processor.post(following, transaction=transaction)

    app.register(Order, handle)
    app.subscribe(Subscription(queue="orders", request=Order, dead_letter_queue="dead"))

    async with app, app.pumping():
        await write(sqlite_place, app, 1)
        await until(lambda: len(handled) == 3)

    assert handled == [1, 2, 3]


async def test_when_an_app_encrypts_then_it_does_so_once_and_before_the_row_is_written(
    sqlite_place: SqlitePlace,
) -> None:
    gateway = RecordingGateway()
    one, other = (Encryption(KeyRing(Key.generate(each))) for each in ("one", "other"))
    async with an_app(gateway, sqlite_place.outbox(), encryption=one) as app:
        await write(sqlite_place, app, 1)
        [(packed,)] = sqlite_place.execute("SELECT message FROM @outbox")
    await relay_all(an_app(gateway, sqlite_place.outbox(), encryption=other))

    [sent] = gateway.sent
    assert b"number" not in packed
    assert sent.message.body.startswith(MAGIC)
    assert sent.message.body == unpack(packed).body


async def test_when_a_handler_reads_what_was_relayed_then_it_is_decrypted(
    sqlite_place: SqlitePlace,
) -> None:
    handled = asyncio.Queue[int]()
    ring = KeyRing(Key.generate("k"))
    app = App("memory://", outbox=sqlite_place.outbox(), encryption=Encryption(ring))

    async def handle(order: Order) -> None:
        handled.put_nowait(order.number)

    app.register(Order, handle)
    app.subscribe(Subscription(queue="orders", request=Order, dead_letter_queue="dead"))

    async with app, app.pumping(), asyncio.timeout(30):
        await write(sqlite_place, app, 7)
        assert await handled.get() == 7


async def test_when_a_post_is_traced_then_its_context_travels_and_the_send_is_linked_to_it(
    sqlite_place: SqlitePlace,
) -> None:
    gateway, spans = RecordingGateway(), Spans()
    telemetry = OpenTelemetry(tracer_provider=spans.provider, metrics=False)
    app = an_app(gateway, sqlite_place.outbox(), telemetry=telemetry)
    tracer = spans.provider.get_tracer("test")

    async with app:
        with tracer.start_as_current_span("request") as request:
            await write(sqlite_place, app, 1)
        [posted] = spans.named("send orders")
    await relay_all(app)

    [_, relayed] = spans.named("send orders")
    context = format(trace_of(posted), "032x")
    assert trace_of(posted) == request.get_span_context().trace_id
    assert context in gateway.sent[0].message.headers["traceparent"]
    assert linked_from(relayed) == [id_of(posted)]


async def test_when_messages_are_measured_then_each_is_counted_as_sent_when_it_is(
    sqlite_place: SqlitePlace,
) -> None:
    app = an_app(RecordingGateway(), sqlite_place.outbox(), telemetry=Metrics())
    async with app:
        await write(sqlite_place, app, 1, 2)
        assert app.counters.value(vocabulary.MESSAGES_SENT) == 0
    await relay_all(app)

    assert app.counters.value(vocabulary.MESSAGES_SENT, queue="orders") == 2


class ForgetfulGateway(MemoryGateway):
    """Accepts the first send, and does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.send_count = 0

    def producer(self, queue: str) -> ProducerPort:
        return ForgetfulProducer(self, super().producer(queue))


class ForgetfulProducer:
    def __init__(self, gateway: ForgetfulGateway, port: ProducerPort) -> None:
        self._gateway = gateway
        self._port = port

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        sent = await self._port.send(messages, delay_s=delay_s)
        self._gateway.send_count += 1
        if self._gateway.send_count == 1:
            raise ConnectionFailed("memory", "the answer was lost")
        return sent

    async def aclose(self) -> None:
        await self._port.aclose()


async def test_when_a_send_is_repeated_then_the_broker_makes_one_message_of_both(
    sqlite_place: SqlitePlace,
) -> None:
    gateway = ForgetfulGateway()
    app = App(gateway, outbox=(outbox := sqlite_place.outbox()))

    async def handle(order: Order) -> None:
        """Never run: nothing pumps."""

    app.register(Order, handle)
    app.subscribe(Subscription(queue="orders", request=Order, dead_letter_queue="dead"))
    async with app:
        await write(sqlite_place, app, 1, 2)
        relay = app.relay()
        running = asyncio.create_task(relay.run())
        await until_empty(outbox)
        relay.drain()
        await running

        assert gateway.send_count == 2
        assert (await app.admin.stats("orders")).visible == 2


async def test_when_a_post_could_only_be_set_aside_then_it_is_refused(
    sqlite_place: SqlitePlace,
) -> None:
    gateway = RecordingGateway()
    gateway.capabilities = attrs.evolve(gateway.capabilities, max_body_bytes=50, max_delay_s=900)
    app = an_app(gateway, outbox := sqlite_place.outbox())

    async with app, sqlite_place.transaction() as transaction:
        with pytest.raises(MessageTooLarge):
            await app.post(Order(number=1, note="x" * 100), transaction=transaction)
        with pytest.raises(UnsupportedOperation):
            await app.post(Order(number=1), transaction=transaction, delay=timedelta(hours=1))
        assert await outbox.stats() == []


async def test_when_a_relay_of_a_file_has_died_then_another_waits_for_the_end_of_its_lease(
    sqlite_place: SqlitePlace,
) -> None:
    clock = VirtualClock()
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := sqlite_place.outbox(), clock=clock)
    async with app:
        await write(sqlite_place, app, 1)
        sqlite_place.execute(
            "INSERT INTO @outbox_lease VALUES ('orders', 'a dead one', ?)", clock.time_s() + 10
        )
        running = asyncio.create_task((relay := app.relay()).run())
        await clock.advance(5)
        assert gateway.sent == []
        await clock.advance(10)
        await until(lambda: gateway.numbers() == [1])
        relay.drain()
        await running
        assert await outbox.stats() == []


async def test_when_a_lease_of_a_file_is_from_before_the_clock_was_set_back_then_it_is_over(
    sqlite_place: SqlitePlace,
) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, sqlite_place.outbox())
    async with app:
        await write(sqlite_place, app, 1)
        sqlite_place.execute("INSERT INTO @outbox_lease VALUES ('orders', 'a dead one', 1e12)")
    await relay_all(app)

    assert gateway.numbers() == [1]


async def test_when_a_file_is_locked_for_long_then_the_relay_waits(tmp_path: Path) -> None:
    path = tmp_path / "user.db"
    gateway = RecordingGateway()
    app = an_app(gateway, SqliteOutbox(path))

    async with app:
        async with aiosqlite.connect(path) as connection:
            await app.post(Order(number=1), transaction=connection)
            await connection.commit()
        async with aiosqlite.connect(path, isolation_level=None) as other:
            await other.execute("BEGIN EXCLUSIVE")
            relay = app.relay()
            running = asyncio.create_task(relay.run())
            await yield_to_loop()
            assert gateway.sent == []
            await other.execute("COMMIT")
        await until(lambda: gateway.numbers() == [1])
        relay.drain()
        await running


def test_when_nothing_was_opened_then_no_file_is_made(tmp_path: Path) -> None:
    SqliteOutbox(tmp_path / "user.db")

    assert list(tmp_path.iterdir()) == []


async def test_when_the_tables_are_of_a_newer_version_then_they_are_left_alone(
    sqlite_place: SqlitePlace,
) -> None:
    async with an_app(RecordingGateway(), sqlite_place.outbox()):
        pass
    with closing(sqlite3.connect(sqlite_place.path)) as connection, connection:
        connection.execute("UPDATE pumphouse_outbox_version SET number = 99")

    with pytest.raises(Exception, match="newer"):
        async with an_app(RecordingGateway(), sqlite_place.outbox()):
            pass
