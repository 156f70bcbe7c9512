"""RabbitMQ and NATS JetStream: Pumphouse and other frameworks, each on a fresh broker of its own.

Everything is sent first. The clock starts when the first message is handled and stops when the
last one is, so no start-up counts. Afterwards the queue must be empty: a contender that loses acks
measures nothing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pump.event_loop import run as run_loop
from tests.brokers import nats_server as nats, rabbitmq_server as rabbitmq

from ..reading import Reading, Span

QUEUE = "ticks"
_PATIENCE_S = 300.0
_SENT_AT_ONCE = 500
_STREAM = "benchmark"


class NotInstalled(ImportError):
    """The broker is missing; `make bench` installs it where it may."""


@contextmanager
def rabbitmq_broker() -> Iterator[str]:
    """The URL of a fresh RabbitMQ."""
    if rabbitmq.installed_server() is None:
        raise NotInstalled("RabbitMQ is not installed: run `make bench` as root")
    with rabbitmq.owned_server_folder() as folder:
        server = rabbitmq.RabbitMQ(folder)
        server.start()
        yield server.url()


@contextmanager
def nats_broker() -> Iterator[str]:
    """The URL of a fresh nats-server with JetStream, whose streams are on the disk."""
    with (
        tempfile.TemporaryDirectory() as folder,
        nats.nats_server(Path(folder) / "nats") as server,
    ):
        yield server.url


class HandledCounter:
    """Counts what was handled; the first starts the clock, the last stops it.

    `cpu_s` is the processor time of everything that consumes.
    """

    def __init__(self, count: int, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._count = count
        self._cpu_s = cpu_s
        self._handled = 0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._started = self._ended = (0.0, 0.0)

    def add(self) -> None:
        """One more was handled, in any thread."""
        with self._lock:
            self.reach(self._handled + 1)

    def reach(self, handled: int) -> None:
        """So many were handled by now; for one thread."""
        before, self._handled = self._handled, handled
        if handled and not before:
            self._started = self._now()
        if handled == self._count:
            self._ended = self._now()
            self._done.set()
        assert handled <= self._count, "a message came twice"

    def wait(self) -> None:
        """Block until the last one was handled."""
        assert self._done.wait(_PATIENCE_S), f"{self._handled} of {self._count} were handled"

    async def wait_async(self) -> None:
        """The same, without holding up the event loop."""
        await asyncio.to_thread(self.wait)

    def reading(self) -> Reading:
        """What it took from the first handled message to the last."""
        (wall_s, cpu_s), (ended_s, spent_s) = self._started, self._ended
        span = Span(wall_s=ended_s - wall_s, cpu_s=spent_s - cpu_s)
        return Reading(messages=self._count - 1, spans={"consume": span})

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), self._cpu_s()


# Pumphouse, as anyone would write it: a URL, a subscription, a handler.


def run_pump_on_rabbitmq(count: int) -> Reading:
    """A quorum queue."""
    with rabbitmq_broker() as url:
        return run_loop(_measure_pump(url, count))


def run_pump_on_nats(count: int) -> Reading:
    """A stream on the disk."""
    with nats_broker() as url:
        return run_loop(_measure_pump(url, count))


async def _measure_pump(url: str, count: int) -> Reading:
    from pump.app import App
    from pump.stores.spill import MemorySpill
    from pump.subscription import MakeChannels

    from .pump import POST_BATCH, SUBSCRIPTION, Tick

    handled = HandledCounter(count)
    # A benchmark leaves no data folder behind.
    app = App(url, spill=MemorySpill())

    async def handle(request: Tick) -> None:
        handled.add()

    app.register(Tick, handle)
    app.subscribe(SUBSCRIPTION)
    async with app:
        for spec in SUBSCRIPTION.queue_specs():
            await app.admin.ensure(spec, MakeChannels.CREATE)
        for start in range(0, count, POST_BATCH):
            numbers = range(start, min(start + POST_BATCH, count))
            await app.post_all([Tick(number) for number in numbers])
        async with app.pumping():
            await handled.wait_async()
        left = await app.admin.stats(SUBSCRIPTION.queue)
        assert not left.visible + left.in_flight, f"{left} were not acked"
    return handled.reading()


# Others on RabbitMQ: durable classic queues, their default.


def run_faststream_on_rabbitmq(count: int) -> Reading:
    """A hundred messages ahead, acks by default."""
    with rabbitmq_broker() as url:
        reading = run_loop(_measure_faststream_on_rabbitmq(url, count))
        _require_empty(url)
    return reading


async def _measure_faststream_on_rabbitmq(url: str, count: int) -> Reading:
    from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

    handled = HandledCounter(count)
    # Without a logger it writes no line for each message; ours writes none either by default.
    broker = RabbitBroker(url, logger=None, default_channel=Channel(prefetch_count=100))
    queue = RabbitQueue(QUEUE, durable=True)

    @broker.subscriber(queue)
    async def handle(number: int) -> None:
        handled.add()

    async with broker:
        await broker.declare_queue(queue)
        for start in range(0, count, _SENT_AT_ONCE):
            numbers = range(start, min(start + _SENT_AT_ONCE, count))
            sends = (broker.publish(number, queue, persist=True) for number in numbers)
            await asyncio.gather(*sends)
        await broker.start()
        await handled.wait_async()
    return handled.reading()


def run_dramatiq_on_rabbitmq(count: int) -> Reading:
    """A worker of dramatiq's default eight threads."""
    import dramatiq
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    handled = HandledCounter(count)
    with rabbitmq_broker() as url:
        broker = RabbitmqBroker(url=url, confirm_delivery=True)

        @dramatiq.actor(broker=broker, queue_name=QUEUE)
        def handle(number: int) -> None:
            handled.add()

        for number in range(count):
            handle.send(number)
        worker = dramatiq.Worker(broker)
        worker.start()
        handled.wait()
        worker.stop()
        broker.close()
        _require_empty(url)
    return handled.reading()


def run_celery_on_rabbitmq(count: int) -> Reading:
    """Acked late as the others do, a hundred messages ahead for each of its pool's processes."""
    import psutil

    from .libraries import celery_app, running_worker

    def cpu_s() -> float:
        """Of this process and those of its pool."""
        here = psutil.Process()
        return float(sum(sum(each.cpu_times()[:2]) for each in (here, *here.children())))

    # Counted in the processes of the pool, which inherit it.
    shared = multiprocessing.Value("i", 0)
    handled = HandledCounter(count, cpu_s)
    with rabbitmq_broker() as url:
        app = celery_app(
            url.replace("%2F", "/"),
            QUEUE,
            task_acks_late=True,
            worker_prefetch_multiplier=100,
            broker_connection_retry_on_startup=True,
        )

        @app.task(name="handle")
        def handle(number: int) -> None:
            with shared.get_lock():
                shared.value += 1

        for number in range(count):
            handle.delay(number)
        deadline_s = time.monotonic() + _PATIENCE_S
        with running_worker(app):
            while shared.value < count:
                assert time.monotonic() < deadline_s, f"{shared.value} of {count} were handled"
                if shared.value:
                    handled.reach(shared.value)
                time.sleep(0.001)
            handled.reach(shared.value)
        app.close()
        _require_empty(url)
    return handled.reading()


def _require_empty(url: str) -> None:
    """Fail when the queue has messages that are not in flight."""
    asyncio.run(_require_empty_async(url))


async def _require_empty_async(url: str) -> None:
    import aiormq

    connection = await aiormq.connect(url)
    try:
        channel = await connection.channel()
        found = await channel.queue_declare(QUEUE, passive=True)
        assert not found.message_count, f"{found.message_count} messages were not acked"
    finally:
        await connection.close()


# Others on JetStream.


def run_faststream_on_nats(count: int) -> Reading:
    """A durable pull consumer of a work queue on the disk."""
    with nats_broker() as url:
        return run_loop(_measure_faststream_on_nats(url, count))


async def _measure_faststream_on_nats(url: str, count: int) -> Reading:
    from faststream.nats import JStream, NatsBroker, PullSub
    from nats.js.api import RetentionPolicy

    handled = HandledCounter(count)
    broker = NatsBroker(url, logger=None)
    work_queue = RetentionPolicy.WORK_QUEUE
    stream = JStream(_STREAM, subjects=[QUEUE], retention=work_queue)

    @broker.subscriber(QUEUE, stream=stream, durable="worker", pull_sub=PullSub(batch_size=100))
    async def handle(number: int) -> None:
        handled.add()

    async with broker:
        connection = broker._connection
        assert connection is not None
        jetstream = connection.jetstream()
        await jetstream.add_stream(name=_STREAM, subjects=[QUEUE], retention=work_queue)
        for start in range(0, count, _SENT_AT_ONCE):
            numbers = range(start, min(start + _SENT_AT_ONCE, count))
            sends = (broker.publish(number, QUEUE, stream=_STREAM) for number in numbers)
            await asyncio.gather(*sends)
        await broker.start()
        await handled.wait_async()
    await _require_empty_stream(url)
    return handled.reading()


async def _require_empty_stream(url: str) -> None:
    """An ack of a work queue removes its message."""
    from nats.aio.client import Client

    connection = Client()
    await connection.connect(url)
    try:
        state = (await connection.jetstream().stream_info(_STREAM)).state
        assert not state.messages, f"{state.messages} messages were not acked"
    finally:
        await connection.close()
