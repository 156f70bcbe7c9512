"""PostgreSQL: Pumphouse, a bare loop and other libraries, each on a fresh server with its defaults.

Everything is sent in batches of a hundred, then received, handled and acked; both count. What must
stay even (an open transaction, waiting consumers) is measured on the gateway's ports alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count as numbers_from
from statistics import quantiles
from typing import Any

import attrs

from gateways.postgres import PostgresGateway, PostgresSettings
from pump.event_loop import run as run_loop
from pump.message import Message, new_id
from pump.outcome import ACK, Defer, Settlement
from pump.subscription import MakeChannels
from tests.brokers.postgres_server import installed_programs, postgres_server

from ..reading import Reading, Stopwatch
from .brokers import NotInstalled
from .pump import POST_BATCH, SUBSCRIPTION, Tick, measure

_CONSUMERS = 2
_WARM_UP = 500
_GROUPS = 1_000
_AHEAD = 2_000
"""The longest the queue gets while something shall stay even."""


@contextmanager
def postgres_database() -> Iterator[str]:
    """The URL of a fresh server: its commits are on the disk."""
    if installed_programs() is None:
        raise NotInstalled("PostgreSQL is not installed: run `make bench` as root")
    with postgres_server(settings=()) as server:
        yield server.url()


# Throughput: send, then receive, handle and ack.


def run_pump(count: int) -> Reading:
    """As anyone would write it: a URL, a subscription, a handler."""
    with postgres_database() as url:
        settings = PostgresSettings.from_url(url)
        run_loop(measure(PostgresGateway(settings), _WARM_UP))
        return run_loop(measure(PostgresGateway(settings), count))


def run_raw(count: int) -> Reading:
    """A table, two loops that lock a hundred rows, and delete them in the same transaction."""
    with postgres_database() as url:
        run_loop(_measure_raw(url, _WARM_UP))
        return run_loop(_measure_raw(url, count))


async def _measure_raw(url: str, count: int) -> Reading:
    import psycopg

    watch, handled = Stopwatch(), numbers_from(1)
    handled_count = 0
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sender:
        await sender.execute(
            "CREATE TABLE IF NOT EXISTS tick (id bigserial PRIMARY KEY, body bytea NOT NULL)"
        )

        async def consume() -> None:
            nonlocal handled_count
            async with await psycopg.AsyncConnection.connect(url) as connection:
                while handled_count < count:
                    found = await connection.execute(
                        "SELECT id, body FROM tick ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED"
                    )
                    rows = await found.fetchall()
                    for _, body in rows:
                        Tick(json.loads(body)["number"])
                        handled_count = next(handled)
                    await connection.execute(
                        "DELETE FROM tick WHERE id = ANY(%s)", [[row[0] for row in rows]]
                    )
                    await connection.commit()

        with watch.span("send"):
            for start in range(0, count, POST_BATCH):
                batch = range(start, min(start + POST_BATCH, count))
                bodies = [json.dumps({"number": number}).encode() for number in batch]
                await sender.execute("INSERT INTO tick (body) SELECT unnest(%b::bytea[])", [bodies])
        with watch.span("pump"):
            await asyncio.gather(*(consume() for _ in range(_CONSUMERS)))
        found = await sender.execute("SELECT count(*) FROM tick")
        assert await found.fetchone() == (0,)
    return watch.reading(count)


def run_procrastinate(count: int) -> Reading:
    """A worker that handles as many at once as ours does."""
    with postgres_database() as url:
        return run_loop(_measure_procrastinate(url, count))


async def _measure_procrastinate(url: str, count: int) -> Reading:
    import procrastinate

    watch, handled_count = Stopwatch(), 0
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

    @app.task(queue=SUBSCRIPTION.queue)
    async def handle(number: int) -> None:
        nonlocal handled_count
        handled_count += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        with watch.span("send"):
            for start in range(0, count, POST_BATCH):
                batch = range(start, min(start + POST_BATCH, count))
                jobs: list[dict[str, Any]] = [{"number": number} for number in batch]
                await handle.batch_defer_async(*jobs)
        with watch.span("pump"):
            await app.run_worker_async(
                wait=False,
                concurrency=SUBSCRIPTION.concurrency,
                install_signal_handlers=False,
                delete_jobs="successful",
            )
    assert handled_count == count, f"{handled_count} of {count} were handled"
    return watch.reading(count)


def run_pgqueuer(count: int) -> Reading:
    """Through asyncpg, a hundred jobs a query, until there are none."""
    with postgres_database() as url:
        return run_loop(_measure_pgqueuer(url, count))


async def _measure_pgqueuer(url: str, count: int) -> Reading:
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.models import Job
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    watch, handled_count = Stopwatch(), 0
    connection: Any = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    manager = QueueManager(queries)

    @manager.entrypoint(SUBSCRIPTION.queue)
    async def handle(job: Job) -> None:
        nonlocal handled_count
        Tick(json.loads(job.payload or b"")["number"])
        handled_count += 1

    with watch.span("send"):
        for start in range(0, count, POST_BATCH):
            batch = range(start, min(start + POST_BATCH, count))
            bodies: list[bytes | None] = [json.dumps({"number": each}).encode() for each in batch]
            queues, priorities = [SUBSCRIPTION.queue] * len(bodies), [0] * len(bodies)
            await queries.enqueue(queues, bodies, priorities)
    with watch.span("pump"):
        await manager.run(
            dequeue_timeout=timedelta(seconds=1),
            batch_size=POST_BATCH,
            mode=QueueExecutionMode.drain,
        )
    assert handled_count == count, f"{handled_count} of {count} were handled"
    await connection.close()
    return watch.reading(count)


# What shall stay even: with a transaction that is open all the time, and without.


def run_even(count: int, *, kind: str, held: float) -> Reading:
    """Messages through a short queue, `held` with a snapshot from before the first of them.

    `plain`, `grouped`: a thousand groups, or `retried`: each is deferred once.
    """
    with postgres_database() as url:
        return run_loop(_measure_even(url, count, kind, is_held=bool(held)))


async def _measure_even(url: str, count: int, kind: str, *, is_held: bool) -> Reading:
    import psycopg

    watch = Stopwatch()
    gateway = PostgresGateway(PostgresSettings.from_url(url))
    await gateway.open()
    await _make_queue(gateway)
    with psycopg.connect(url) as old:
        if is_held:
            old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            old.execute("SELECT 1")
        stream = _Stream(gateway, kind, count)
        with watch.span("send and pump"):
            await stream.run()
        reading = watch.reading(count)
    figures = {"size_mib": _size_mib(url), "last_tenth_to_first": stream.last_tenth_to_first}
    await gateway.aclose()
    return attrs.evolve(reading, figures=figures)


async def _make_queue(gateway: PostgresGateway) -> None:
    for spec in SUBSCRIPTION.queue_specs():
        await gateway.admin().ensure(spec, MakeChannels.CREATE)


def _size_mib(url: str) -> float:
    import psycopg

    with psycopg.connect(url) as connection:
        [size] = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = 'pumphouse' AND c.relkind = 'r'"
        ).fetchone() or (0,)
    return float(size) / 2**20


class _Stream:
    """Two senders, and two consumers that keep the queue short."""

    def __init__(self, gateway: PostgresGateway, kind: str, count: int) -> None:
        self._gateway = gateway
        self._kind = kind
        self._count = count
        self._sent = self._done = 0
        self._tenths: list[float] = []

    @property
    def last_tenth_to_first(self) -> float:
        """The time that the last tenth of the messages took, by that of the first."""
        at = self._tenths
        return (at[-1] - at[-2]) / (at[1] - at[0])

    async def run(self) -> None:
        self._tenths.append(time.perf_counter())
        works: list[Callable[[], Any]] = [self._send, self._consume]
        await asyncio.gather(*(work() for work in works * _CONSUMERS))

    async def _send(self) -> None:
        producer = self._gateway.producer(SUBSCRIPTION.queue)
        while self._sent < self._count:
            if self._sent - self._done > _AHEAD:
                await asyncio.sleep(0.001)
                continue
            batch = range(self._sent, min(self._sent + POST_BATCH, self._count))
            self._sent = batch.stop
            await producer.send([self._message(number) for number in batch])

    def _message(self, number: int) -> Message:
        group = f"{number % _GROUPS}" if self._kind == "grouped" else None
        return Message(body=b"%d" % number, id=new_id(), group=group)

    async def _consume(self) -> None:
        port = self._gateway.consumer(SUBSCRIPTION)
        while self._done < self._count:
            received = await port.receive(max_count=POST_BATCH, wait_s=0.5)
            settled = [Settlement(each, self._action(each.attempt)) for each in received]
            assert not await port.settle(settled)
            self._done += sum(each.action is ACK for each in settled)
            while self._done * 10 >= self._count * len(self._tenths):
                self._tenths.append(time.perf_counter())

    def _action(self, attempt: int) -> Any:
        return Defer(0.3) if self._kind == "retried" and attempt == 1 else ACK


# Latency: single messages at a steady rate; the consumers are told of them.


def run_latency(count: int, *, rate: float, consumers: float) -> Reading:
    """`count` sends that wait for no other, to consumers of another gateway."""
    with postgres_database() as url:
        run_loop(_measure_latency(url, round(rate), rate, round(consumers)))
        return run_loop(_measure_latency(url, count, rate, round(consumers)))


async def _measure_latency(url: str, count: int, rate: float, consumers: int) -> Reading:
    sending, receiving = (PostgresGateway(PostgresSettings.from_url(url)) for _ in range(2))
    await sending.open()
    await receiving.open()
    await _make_queue(sending)
    producer, watch = sending.producer(SUBSCRIPTION.queue), Stopwatch()
    sent_s, took_s = [0.0] * count, list[float]()
    is_over = asyncio.Event()

    async def send(number: int) -> None:
        sent_s[number] = time.perf_counter()
        await producer.send([Message(body=b"%d" % number, id=new_id())])

    async def consume() -> None:
        port = receiving.consumer(SUBSCRIPTION)
        while not is_over.is_set():
            received = await port.receive(max_count=POST_BATCH, wait_s=60.0)
            now_s = time.perf_counter()
            took_s.extend(now_s - sent_s[int(each.message.body)] for each in received)
            assert not await port.settle([Settlement(each, ACK) for each in received])
            if len(took_s) >= count:
                is_over.set()

    with watch.span("send and receive"):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(consume()) for _ in range(consumers)]
            started_s = time.perf_counter()
            for number in range(count):
                early_s = started_s + number / rate - time.perf_counter()
                if early_s > 0:
                    await asyncio.sleep(early_s)
                group.create_task(send(number))
            await is_over.wait()
            for task in tasks:
                task.cancel()
    statements = receiving._database.counts["receive"]
    await sending.aclose()
    await receiving.aclose()
    cuts = quantiles(took_s, n=100)
    figures = {
        "rate": rate,
        "receiving_p50_ms": cuts[49] * 1e3,
        "receiving_p99_ms": cuts[98] * 1e3,
        "receives_per_message": statements / count,
    }
    return attrs.evolve(watch.reading(count), figures=figures)
