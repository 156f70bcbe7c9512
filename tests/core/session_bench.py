"""A bench for sessions: consumers of `orders` on a broker that has them, and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pump import App, Subscription
from pump.consumer import Consumer
from pump.events import Event, LeaseLostEvent, OutcomeEvent
from pump.message import Delivery
from pump.session import Session
from pump.stores.spill import MemorySpill
from pump.testing.virtual_clock import VirtualClock

from .fake_sessions import SessionedGateway

NOW = timedelta(0)
MINUTE = timedelta(minutes=1)


class Bench:
    """Consumers of `orders` on a broker with sessions; a lease is 30 s."""

    def __init__(self) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.gateway = SessionedGateway(self.clock)
        self.events: list[Event] = []
        self.app = App(
            self.gateway, clock=self.clock, spill=MemorySpill(), observers=[self.events.append]
        )
        self.consumer: Consumer

    def subscription(self, **fields: Any) -> Subscription:
        return Subscription(queue="orders", request=dict, dead_letter_queue="dead", **fields)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """What observers were told of messages: id and status."""
        told = [event for event in self.events if isinstance(event, OutcomeEvent)]
        return [(event.message_id, event.status.value) for event in told]

    @property
    def lost(self) -> list[str]:
        """The messages of which observers were told that they are lost."""
        return [each.message_id for each in self.events if isinstance(each, LeaseLostEvent)]

    async def dead_letters(self) -> list[str]:
        return [message.id for message in await self.gateway.admin().peek("dead", max_count=100)]


@asynccontextmanager
async def open_bench() -> AsyncIterator[Bench]:
    """A bench with an open consumer."""
    bench = Bench()
    async with bench.app, bench.app.consumer(bench.subscription()) as consumer:
        bench.consumer = consumer
        yield bench


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    return [delivery.message.id for delivery in deliveries]


def keepers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "session keeper"]


def every_call(session: Session, delivery: Delivery) -> dict[str, Callable[[], Awaitable[object]]]:
    return {
        "receive": lambda: session.receive(wait=NOW),
        "ack": lambda: session.ack(delivery),
        "defer": lambda: session.defer(delivery),
        "abandon": lambda: session.abandon(delivery),
        "reject": lambda: session.reject(delivery),
        "renew": session.renew,
    }
