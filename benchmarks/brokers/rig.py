"""Rig: a real broker of the measurement's own, and the clock that runs while it is consumed.

Everything is sent first. The clock starts when the first message is handled and stops when the last
one is, so nobody's start-up counts. Afterwards the queue must be empty: whoever loses acks measures
nothing.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers import nats_server as nats, rabbitmq_server as rabbitmq

from ..reading import Reading, Span

QUEUE = "ticks"
PATIENCE_S = 300.0


class NotInstalled(ImportError):
    """The broker is missing; `make bench` installs it where it may."""


class Tally:
    """Counts what was handled; the first starts the clock, the last stops it.

    `cpu_s` is the processor time of everything that consumes.
    """

    def __init__(self, count: int, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._count = count
        self._cpu_s = cpu_s
        self._handled = 0
        self._turn = threading.Lock()
        self._done = threading.Event()
        self._started = self._ended = (0.0, 0.0)

    def add(self) -> None:
        """One more was handled, in whichever thread."""
        with self._turn:
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
        assert self._done.wait(PATIENCE_S), f"{self._handled} of {self._count} were handled"

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


def require_empty(url: str, queue: str = QUEUE) -> None:
    """Fail when a RabbitMQ queue has messages that nobody holds any more."""
    asyncio.run(_require_empty(url, queue))


async def _require_empty(url: str, queue: str) -> None:
    import aiormq

    connection = await aiormq.connect(url)
    try:
        channel = await connection.channel()
        found = await channel.queue_declare(queue, passive=True)
        assert not found.message_count, f"{found.message_count} messages were not acked"
    finally:
        await connection.close()
