"""What tests of the outbox share: a gateway that records what it is sent, and refuses on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs

from gateways.memory import MemoryGateway
from pump import App, Command
from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK
from pump.message import Message
from pump.outbox.relay import Relay
from pump.outbox.store import Outbox
from pump.ports import AdminPort, ConsumerPort, ProducerPort
from pump.subscription import Subscription

PATIENCE_S = 30.0
"""How long is waited for what must be there: a bound, and no measure."""
Refusal = Callable[[str, Sequence[Message]], Awaitable[None]]


class Order(Command):
    number: int
    note: str = ""


async def _accept(queue: str, messages: Sequence[Message]) -> None:
    """No refusal."""


@attrs.define(eq=False)
class Sent:
    """One message that a broker accepted."""

    queue: str
    message: Message
    delay_s: float


class RecordingGateway:
    """Takes every message and keeps none; `refuse` may raise, or wait, before it does."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.refuse: Refusal = _accept
        self.after: Refusal = _accept
        """Once they are accepted, and before the sender knows."""
        self.capabilities: Capabilities = MemoryGateway().capabilities

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        raise NotImplementedError

    def producer(self, queue: str) -> ProducerPort:
        return _RecordingProducer(self, queue)

    def admin(self) -> AdminPort:
        raise NotImplementedError

    def numbers(self, queue: str | None = None) -> list[int]:
        """Of the orders that were sent, in turn."""
        return [
            int(each.message.body.decode().partition('"number":')[2].strip(" }").split(",")[0])
            for each in self.sent
            if queue in (None, each.queue)
        ]


class _RecordingProducer:
    def __init__(self, gateway: RecordingGateway, queue: str) -> None:
        self._gateway = gateway
        self._queue = queue

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        await self._gateway.refuse(self._queue, messages)
        self._gateway.sent += [Sent(self._queue, each, delay_s) for each in messages]
        await self._gateway.after(self._queue, messages)
        return [each.id for each in messages]

    async def aclose(self) -> None:
        """Nothing to close."""


def an_app(gateway: RecordingGateway, outbox: Outbox | None, **fields: Any) -> App:
    """An app that routes orders to a queue."""
    app = App(gateway, outbox=outbox, **fields)
    app.route(Order, "orders")
    return app


@asynccontextmanager
async def relaying(app: App) -> AsyncIterator[Relay]:
    """A relay beside the block, drained at its end."""
    relay = app.relay()
    task = asyncio.create_task(relay.run())
    try:
        yield relay
        relay.drain()
        async with asyncio.timeout(PATIENCE_S):
            await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def relay_all(app: App) -> None:
    """Send all that waits in the app's outbox."""
    assert app.outbox is not None
    async with app, relaying(app):
        await until_empty(app.outbox)


async def until(is_true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for it, as long as a test may."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = is_true()
            if found if isinstance(found, bool) else await found:
                return
            await SYSTEM_CLOCK.sleep(0.005)


async def until_empty(outbox: Outbox) -> None:
    """Wait until nothing waits in it."""

    async def is_empty() -> bool:
        return not any(each.waiting for each in await outbox.stats())

    await until(is_empty)
