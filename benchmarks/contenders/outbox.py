"""The outbox on a PostgreSQL of its own, which syncs its commits to the disk: what a post adds to a
transaction, how fast a relay is, and how long a message takes from its commit to the broker.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import psycopg

from gateways.local import LocalGateway
from gateways.memory import MemoryGateway
from gateways.postgres import PostgresGateway, PostgresSettings
from pump import App, Subscription
from pump.clock import SYSTEM_CLOCK
from pump.event_loop import run as run_loop
from pump.message import Message
from pump.outbox import PostgresOutbox
from pump.percentiles import percentile
from pump.ports import Gateway, ProducerPort
from pump.stores.spill import MemorySpill
from pump.subscription import MakeChannels
from tests.brokers import postgres_server as servers

from ..reading import Reading, Stopwatch
from .pump import Tick

QUEUE = "ticks"
RATE = 500.0
"""Posts a second, for the time from commit to broker."""
_DEPOSITED_AT_ONCE = 500
_PATIENCE_S = 120.0
_OWN_TABLE = "CREATE TABLE orders (number int)"
_OWN_ROW = "INSERT INTO orders VALUES (%s)"


class NotInstalled(ImportError):
    """PostgreSQL is missing; `make bench` installs it where it may."""


@contextmanager
def _server() -> Iterator[str]:
    """The URL of a fresh server with the settings of production."""
    if servers.installed_programs() is None:
        raise NotInstalled("PostgreSQL is not installed: run `make bench` as root")
    with servers.postgres_server(()) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(_OWN_TABLE)
        yield server.url()


@attrs.define(eq=False)
class _Witness:
    """A gateway that notes when it has accepted what."""

    inner: Gateway
    count: int
    accepted_s: dict[int, float] = attrs.field(factory=dict)
    has_all: asyncio.Event = attrs.field(factory=asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def producer(self, queue: str) -> ProducerPort:
        return _WitnessProducer(self, self.inner.producer(queue))

    async def make_queue(self) -> None:
        for spec in Subscription(queue=QUEUE, request=Tick).queue_specs():
            await self.inner.admin().ensure(spec, MakeChannels.CREATE)


@attrs.frozen
class _WitnessProducer:
    witness: _Witness
    inner: ProducerPort

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        ids = await self.inner.send(messages, delay_s=delay_s)
        now_s = time.monotonic()
        for each in messages:
            number = msgspec.json.decode(each.body, type=Tick).number
            self.witness.accepted_s.setdefault(number, now_s)
        if len(self.witness.accepted_s) == self.witness.count:
            self.witness.has_all.set()
        return ids

    async def aclose(self) -> None:
        await self.inner.aclose()


def _app(gateway: Gateway, url: str, **options: Any) -> App:
    app = App(gateway, outbox=PostgresOutbox(url, **options), spill=MemorySpill())
    app.route(Tick, QUEUE)
    return app


# Posting.


def run_posting(count: int, *, posts: str, connections: float) -> Reading:
    """Transactions, each with a row of the user's own, and a post or none."""
    with _server() as url:
        return run_loop(_post(url, count, posts=posts, connections=int(connections)))


async def _post(url: str, count: int, *, posts: str, connections: int) -> Reading:
    app = _app(MemoryGateway(), url, notify=posts != "silently")
    watch = Stopwatch()
    numbers = iter(range(count))

    async def transact(connection: psycopg.AsyncConnection) -> None:
        for number in numbers:
            async with connection.transaction():
                await connection.execute(_OWN_ROW, [number])
                if posts:
                    await app.post(Tick(number), transaction=connection)

    connect = psycopg.AsyncConnection.connect
    async with app:
        opened = [await connect(url, autocommit=True) for _ in range(connections)]
        with watch.span("post"):
            async with asyncio.TaskGroup() as group:
                for each in opened:
                    group.create_task(transact(each))
        for each in opened:
            await each.close()
        assert app.outbox is not None
        waiting = sum([each.waiting for each in await app.outbox.stats()])
        assert waiting == (count if posts else 0), f"{waiting} wait"
    return watch.reading(count)


# Relaying.


def run_relay(count: int, *, gateway: str) -> Reading:
    """One relay sends what waits."""
    with _server() as url, _gateway(gateway, url) as made:
        return run_loop(_relay(url, made, count))


@contextmanager
def _gateway(kind: str, url: str) -> Iterator[Gateway]:
    match kind:
        case "local":
            with tempfile.TemporaryDirectory(dir=".") as folder:
                yield LocalGateway(Path(folder) / "queues")
        case "postgres":
            yield PostgresGateway(PostgresSettings.from_url(f"{url}?schema=queues"), SYSTEM_CLOCK)
        case _:
            yield MemoryGateway()


async def _relay(url: str, gateway: Gateway, count: int) -> Reading:
    witness = _Witness(gateway, count)
    app, watch = _app(witness, url), Stopwatch()
    async with app:
        await witness.make_queue()
        await _deposit(app, url, count)
        relay = app.relay()
        running = asyncio.create_task(relay.run())
        with watch.span("relay"):
            await witness.has_all.wait()
        relay.drain()
        await running
    return watch.reading(count)


async def _deposit(app: App, url: str, count: int) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for start in range(0, count, _DEPOSITED_AT_ONCE):
            numbers = range(start, min(start + _DEPOSITED_AT_ONCE, count))
            async with connection.transaction():
                await app.post_all([Tick(number) for number in numbers], transaction=connection)


# From commit to broker.


def run_latency(count: int, *, gateway: str) -> Reading:
    """Another process posts at a steady rate, a transaction each; here it is relayed."""
    with _server() as url, _gateway(gateway, url) as made:
        return run_loop(_follow(url, made, count))


async def _follow(url: str, gateway: Gateway, count: int) -> Reading:
    witness = _Witness(gateway, count)
    app, watch = _app(witness, url), Stopwatch()
    async with app:
        await witness.make_queue()
        relay = app.relay()
        running = asyncio.create_task(relay.run())
        with watch.span("relay"):
            poster = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __name__, url, str(count)), stdout=subprocess.PIPE
            )
            said, _ = await poster.communicate()
            async with asyncio.timeout(_PATIENCE_S):
                await witness.has_all.wait()
        relay.drain()
        await running
    committed_s = json.loads(said)
    # The first second is the start of everything.
    took_s = sorted(
        max(0.0, witness.accepted_s[number] - at_s)
        for number, at_s in enumerate(committed_s)
        if number >= min(RATE, count / 4)
    )
    return attrs.evolve(
        watch.reading(count),
        figures={
            f"p{share:g}_ms": percentile(took_s, share / 100) * 1000 for share in (50, 99, 99.9)
        },
    )


async def _post_steadily(url: str, count: int, said: Callable[[list[float]], None]) -> None:
    """A post each `1 / RATE` seconds, over connections that are free or new ones."""
    app = _app(MemoryGateway(), url)
    committed_s = [0.0] * count
    free: list[psycopg.AsyncConnection] = []

    async def post(number: int) -> None:
        if not free:
            free.append(await psycopg.AsyncConnection.connect(url, autocommit=True))
        connection = free.pop()
        async with connection.transaction():
            await connection.execute(_OWN_ROW, [number])
            await app.post(Tick(number), transaction=connection)
        committed_s[number] = time.monotonic()
        free.append(connection)

    async with app, asyncio.TaskGroup() as group:
        begun_s = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, begun_s + number / RATE - time.monotonic()))
            group.create_task(post(number))
    for each in free:
        await each.close()
    said(committed_s)


if __name__ == "__main__":
    run_loop(_post_steadily(sys.argv[1], int(sys.argv[2]), lambda found: print(json.dumps(found))))
