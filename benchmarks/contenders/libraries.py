"""Other libraries, and loops without one, in one process: in memory, and on the disk.

And Celery's worker, which is measured on SQS and on RabbitMQ.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pump.event_loop import run as run_loop

from ..reading import Reading, Stopwatch

_GROUP = 100
"""Messages a transaction of SQLite by hand."""

# In memory.


def run_asyncio_queue(count: int) -> Reading:
    """A bare asyncio.Queue and one task: what no framework at all costs."""

    async def handle(number: int) -> None:
        pass

    async def consume(queue: asyncio.Queue[int]) -> None:
        while True:
            number = await queue.get()
            await handle(number)
            queue.task_done()

    async def measure() -> Reading:
        queue: asyncio.Queue[int] = asyncio.Queue()
        watch = Stopwatch()
        with watch.span("send and handle"):
            consuming = asyncio.create_task(consume(queue))
            for number in range(count):
                await queue.put(number)
            await queue.join()
        consuming.cancel()
        return watch.reading(count)

    return run_loop(measure())


def run_taskiq(count: int) -> Reading:
    """taskiq's InMemoryBroker: tasks start as they are kicked; there is nothing to ack."""
    from taskiq import InMemoryBroker

    async def measure() -> Reading:
        broker = InMemoryBroker()

        @broker.task
        async def handle(number: int) -> None:
            pass

        await broker.startup()
        watch = Stopwatch()
        with watch.span("send and handle"):
            for number in range(count):
                await handle.kiq(number)
            await broker.wait_all()
        await broker.shutdown()
        return watch.reading(count)

    return run_loop(measure())


def run_dramatiq(count: int) -> Reading:
    """dramatiq's StubBroker and a worker with its default eight threads.

    The actor is a blocking function, dramatiq's own kind: an async one would cost it more.
    """
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    broker = StubBroker()
    broker.emit_after("process_boot")

    @dramatiq.actor(broker=broker)
    def handle(number: int) -> None:
        pass

    worker = dramatiq.Worker(broker)
    worker.start()
    watch = Stopwatch()
    with watch.span("send and handle"):
        for number in range(count):
            handle.send(number)
        broker.join(handle.queue_name)
        worker.join()
    worker.stop()
    broker.close()
    return watch.reading(count)


def run_faststream(count: int) -> Reading:
    """FastStream's in-memory test broker: a publish runs its subscriber before it returns."""
    from faststream.nats import NatsBroker, TestNatsBroker

    async def measure() -> Reading:
        broker = NatsBroker()

        @broker.subscriber("ticks")
        async def handle(number: int) -> None:
            pass

        watch = Stopwatch()
        async with TestNatsBroker(broker):
            with watch.span("send and handle"):
                for number in range(count):
                    await broker.publish(number, "ticks")
        return watch.reading(count)

    return run_loop(measure())


# On the disk.


def run_sqlite(count: int) -> Reading:
    """sqlite3 by hand, a hundred messages a transaction, each transaction synced to the disk."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        database = sqlite3.connect(Path(folder) / "queue.db", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE message (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        with watch.span("send"):
            _insert(database, count)
        with watch.span("pump"):
            handled = _consume(database)
        assert handled == count
        database.close()
    return watch.reading(count)


def _insert(database: sqlite3.Connection, count: int) -> None:
    for start in range(0, count, _GROUP):
        bodies = [(b'{"number":%d}' % number,) for number in range(start, start + _GROUP)]
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO message (body) VALUES (?)", bodies[: count - start])
        database.execute("COMMIT")


def _consume(database: sqlite3.Connection) -> int:
    handled = 0
    while True:
        database.execute("BEGIN IMMEDIATE")
        rows = database.execute(
            "SELECT seq, body FROM message ORDER BY seq LIMIT ?", (_GROUP,)
        ).fetchall()
        for _, body in rows:
            _handle(body)
        database.executemany("DELETE FROM message WHERE seq = ?", [(seq,) for seq, _ in rows])
        database.execute("COMMIT")
        handled += len(rows)
        if not rows:
            return handled


def _handle(body: object) -> None:
    pass


def run_huey(count: int) -> Reading:
    """Huey on SQLite with its default settings; tasks are taken and run in this thread.

    That spares it the threads and the polling of its consumer. A task is gone once it is taken.
    """
    from huey import SqliteHuey

    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        huey = SqliteHuey(filename=str(Path(folder) / "huey.db"))

        @huey.task()
        def handle(number: int) -> None:
            pass

        with watch.span("send"):
            for number in range(count):
                handle(number)
        with watch.span("pump"):
            handled = 0
            while (task := huey.dequeue()) is not None:
                huey.execute(task)
                handled += 1
        assert handled == count
        huey.storage.close()
    return watch.reading(count)


def run_persist_queue(count: int) -> Reading:
    """persist-queue's SQLiteAckQueue: put, get, ack."""
    from persistqueue import SQLiteAckQueue

    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        queue = SQLiteAckQueue(folder)
        with watch.span("send"):
            for number in range(count):
                queue.put({"number": number})
        with watch.span("pump"):
            for _ in range(count):
                item = queue.get(block=False, raw=True)
                _handle(item["data"])
                queue.ack(item)
        assert queue.acked_count() == count
        queue.close()
    return watch.reading(count)


def run_litequeue(count: int) -> Reading:
    """litequeue: put, pop, done."""
    from litequeue import LiteQueue

    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        queue = LiteQueue(str(Path(folder) / "queue.db"))
        with watch.span("send"):
            for number in range(count):
                queue.put(f'{{"number":{number}}}')
        with watch.span("pump"):
            while (message := queue.pop()) is not None:
                _handle(message.data)
                queue.done(message.message_id)
        assert queue.qsize() == 0
        queue.close()
    return watch.reading(count)


# Celery's worker: no results, no events, two pool processes.


def celery_app(broker: str, queue: str, **settings: Any) -> Any:
    """An app with as little beside its work as settings allow."""
    from celery import Celery

    app = Celery("benchmark", broker=broker)
    app.conf.update(
        task_default_queue=queue,
        task_ignore_result=True,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        **settings,
    )
    return app


@contextmanager
def running_worker(app: Any) -> Iterator[None]:
    """A worker in a thread, for as long as the body."""
    from celery.platforms import SecurityWarning
    from celery.worker import state

    warnings.simplefilter("ignore", SecurityWarning)  # of a worker that runs as root
    worker = app.Worker(
        pool="prefork",
        concurrency=2,
        loglevel="ERROR",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    thread = threading.Thread(target=worker.start)
    thread.start()
    try:
        yield
    finally:
        state.should_stop = 0
        thread.join()
        state.should_stop = None
