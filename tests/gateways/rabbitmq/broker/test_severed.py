"""Connections that are cut: nothing is lost, and work goes on by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gateways.rabbitmq import RabbitMQSettings
from pump import App
from pump.clock import SYSTEM_CLOCK
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import (
    PATIENCE_S,
    Job,
    a_job,
    a_job_subscription,
    make,
)

from .conftest import OpenGateway
from .places import via

pytestmark = pytest.mark.broker


async def test_when_the_connection_is_cut_then_only_what_ran_is_handled_again(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """Law 3: leases end with their connection. The handler that runs is told, and what was only
    prefetched is not started.
    """
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        # So long that no extension finds out before the connection's end is told.
        subscription = a_job_subscription(
            name, concurrency=1, prefetch=19, lease=timedelta(minutes=10)
        )
        runs: list[int] = []
        cancelled: list[int] = []
        is_running, is_done = asyncio.Event(), asyncio.Event()

        async def handle(job: Job) -> None:
            runs.append(job.number)
            if len(runs) == 1:
                is_running.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(job.number)
                    raise
            if len(set(runs)) == 20:
                is_done.set()

        app = App(gateway)
        app.register(Job, handle)
        app.subscribe(subscription)
        await make(gateway, subscription)
        await gateway.producer(name).send([a_job(number) for number in range(20)])
        async with app, app.pumping() as dispatcher:
            await is_running.wait()
            # Some wait behind it: how many is the broker's business.
            while dispatcher.performers[0].stats.received < 2:
                await SYSTEM_CLOCK.sleep(0.01)
            proxy.sever()
            await asyncio.wait_for(is_done.wait(), PATIENCE_S)

        assert cancelled == runs[:1]
        assert sorted(runs[1:]) == list(range(20))
