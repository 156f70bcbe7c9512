"""A cluster of three, each of which is killed once: the pump ends every message (R51, law 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pump import App, Command
from pump.clock import SYSTEM_CLOCK
from pump.errors import GatewayError
from pump.stores.spill import MemorySpill
from tests.brokers.nats_server import NatsServer, free_port

from .bench import Bench, gateway_at

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(180)]

JOB_COUNT = 1_500


class Job(Command):
    number: int


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[NatsServer]]:
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = [
        NatsServer(
            tmp_path / f"server-{number}",
            f"server_name: server-{number}\n"
            f'cluster {{ name: test, listen: "127.0.0.1:{port}", routes: [{routes}] }}',
        )
        for number, port in enumerate(ports)
    ]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.close()


async def test_when_each_server_is_killed_in_turn_then_every_message_is_handled(
    cluster: list[NatsServer],
) -> None:
    """Queues on three servers, of which two are there at any time."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in cluster)
    bench = Bench(f"nats://{hosts}?replicas=3")
    handled: set[int] = set()
    is_done = asyncio.Event()

    async def handle(job: Job) -> None:
        handled.add(job.number)
        if len(handled) == JOB_COUNT:
            is_done.set()

    app = App(gateway_at(bench.url), clock=SYSTEM_CLOCK, spill=MemorySpill())
    app.register(Job, handle)
    lease, wait = timedelta(seconds=3), timedelta(seconds=1)
    app.subscribe(bench.subscription(request=Job, lease=lease, wait=wait))
    async with app:
        await until_led(bench)
        async with app.pumping() as dispatcher:
            killing = asyncio.create_task(kill_in_turn(cluster))
            for number in range(JOB_COUNT):
                await post(app, number)
            await killing
            await is_done.wait()
            restarts = dispatcher.performers[0].stats.restarts

    assert handled == set(range(JOB_COUNT))
    assert restarts == 0


async def until_led(bench: Bench) -> None:
    """Return when the servers have agreed on a leader and can keep a queue."""
    while True:
        try:
            async with bench.gateway() as gateway:
                return await bench.make(gateway)
        except GatewayError:
            await SYSTEM_CLOCK.sleep(0.2)


async def post(app: App, number: int) -> None:
    """As a careful sender does it: again, until it is confirmed."""
    while True:
        try:
            await app.post(Job(number))
            return
        except GatewayError:
            await SYSTEM_CLOCK.sleep(0.05)


async def kill_in_turn(servers: list[NatsServer]) -> None:
    for server in servers:
        await SYSTEM_CLOCK.sleep(0.5)
        await asyncio.to_thread(server.kill)
        await SYSTEM_CLOCK.sleep(1.5)
        await asyncio.to_thread(server.start)
        # Long enough to catch up: two of three must be there.
        await SYSTEM_CLOCK.sleep(3.0)
