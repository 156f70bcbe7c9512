"""The Postgres gateway keeps the contract on a real server, in virtual time (R55, R76)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import attrs
import pytest

from gateways.postgres import PostgresGateway, PostgresSettings
from pump.ports import Gateway
from pump.tasks import in_thread
from pump.testing.contract import GatewayContract, Network, Rig
from tests.brokers.postgres_server import PostgresServer
from tests.brokers.tcp_proxy import TcpProxy
from tests.brokers.travelling_postgres import (
    CountedGateway,
    ServerClock,
    raw_insert,
    schema_in_virtual_time,
)

pytestmark = pytest.mark.broker

_numbers = count(1)


@attrs.frozen
class _Cable:
    """A network whose cuts are noticed before time goes on."""

    proxy: TcpProxy
    gateway: PostgresGateway
    clock: ServerClock

    def sever(self) -> None:
        self._await_loss()
        self.proxy.sever()

    def shut(self) -> None:
        self._await_loss()
        self.proxy.shut()

    def let_in(self) -> None:
        self.proxy.let_in()

    def _await_loss(self) -> None:
        lost = self.gateway._listener._connection
        if lost is None:
            return
        self.clock.awaited.append(lambda: self.gateway._listener._connection is not lost)


async def open_rig(server: PostgresServer, clock: ServerClock, schema: str) -> Rig:
    """A rig whose time the tests move."""
    settings = PostgresSettings.from_url(f"{server.url()}?schema={schema}")

    async def open_gateway() -> CountedGateway:
        gateway = clock.gateway(settings)
        await gateway.open()
        return gateway

    async def store_raw(queue: str, raw: bytes) -> None:
        await in_thread(raw_insert, server.url(), schema, queue, raw)

    @asynccontextmanager
    async def behind_network() -> AsyncIterator[tuple[Gateway, Network]]:
        async with TcpProxy(server.port) as proxy:
            url = f"{server.url(port=proxy.port)}?schema={schema}"
            gateway = clock.gateway(PostgresSettings.from_url(url))
            await gateway.open()
            yield gateway, _Cable(proxy, gateway, clock)
            await gateway.aclose()

    gateway = await open_gateway()
    return Rig(
        gateway=gateway,
        clock=clock,
        redrives_on_receive=True,
        open_again=open_gateway,
        in_another_process=partial(PostgresGateway, settings),
        store_raw=store_raw,
        behind_network=behind_network,
        settle_requests=lambda: gateway.settle_count,
    )


class TestPostgres(GatewayContract):
    @pytest.fixture
    async def rig(self, postgres: PostgresServer) -> AsyncIterator[Rig]:
        schema = f"test_{next(_numbers)}"
        with schema_in_virtual_time(postgres.url(), schema) as clock:
            rig = await open_rig(postgres, clock, schema)
            yield rig
            await rig.aclose()


@pytest.mark.loops("uvloop")
class TestPostgresOnUvloop(TestPostgres):
    """The same on the loop that `pump run` uses."""
