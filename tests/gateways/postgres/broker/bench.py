"""What the tests on a real server share: a schema, gateways on it, and a look behind their back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import attrs
import psycopg

from gateways.postgres import PostgresGateway, PostgresSettings
from pump.clock import SYSTEM_CLOCK
from pump.errors import GatewayError, SendFailed
from pump.message import Delivery, new_id
from pump.subscription import MakeChannels, Subscription
from pump.testing.builders import a_message, a_subscription
from tests.brokers.postgres_server import PostgresServer

T = TypeVar("T")
PATIENCE_S = 60.0
"""How long is waited for what must be there: a bound, and no measure."""


@attrs.frozen
class Bench:
    """One schema."""

    server: PostgresServer
    schema: str = attrs.field(factory=lambda: f"s_{new_id()[:8]}{new_id()[-6:]}")
    queue: str = "orders"

    def settings(self, **fields: Any) -> PostgresSettings:
        """Those of a gateway on it; `port` names another way to the server."""
        url = self.server.url(port=fields.pop("port", None), user=fields.pop("as_user", ""))
        return attrs.evolve(PostgresSettings.from_url(url), schema=self.schema, **fields)

    @asynccontextmanager
    async def gateway(self, **fields: Any) -> AsyncIterator[PostgresGateway]:
        """A gateway, open."""
        gateway = PostgresGateway(self.settings(**fields))
        await gateway.open()
        try:
            yield gateway
        finally:
            await gateway.aclose()

    def subscription(self, **fields: Any) -> Subscription:
        """To its queue, with leases that outlast a busy machine."""
        fields.setdefault("lease", timedelta(seconds=PATIENCE_S))
        return a_subscription(self.queue, **fields)

    async def make(self, gateway: PostgresGateway, **fields: Any) -> Subscription:
        """Make its queue."""
        subscription = self.subscription(**fields)
        for spec in subscription.queue_specs():
            await gateway.admin().ensure(spec, MakeChannels.CREATE)
        return subscription

    async def send(self, gateway: PostgresGateway, *ids: str) -> None:
        """Send a message for each id."""
        await gateway.producer(self.queue).send([a_message(id=each) for each in ids])

    def execute(self, sql: str, arguments: Sequence[object] | None = None) -> list[Any]:
        """Ask the server directly; `@.` stands for the schema."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            cursor = connection.execute(sql.replace("@.", f'"{self.schema}".').encode(), arguments)
            return cursor.fetchall() if cursor.description is not None else []


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    """Of the messages."""
    return [each.message.id for each in deliveries]


async def surely(work: Callable[[], Awaitable[T]]) -> T:
    """What a call returns once it succeeds, as a careful caller makes it: again."""
    ends_at_s = SYSTEM_CLOCK.now_s() + PATIENCE_S
    while SYSTEM_CLOCK.now_s() < ends_at_s:
        try:
            return await work()
        except (GatewayError, SendFailed):
            await SYSTEM_CLOCK.sleep(0.05)
    return await work()
