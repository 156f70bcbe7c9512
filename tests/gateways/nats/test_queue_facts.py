"""What is known of a queue is asked for once, and again when it may have changed."""

from __future__ import annotations

from typing import Any, cast

from gateways.nats.connection import JetStream
from gateways.nats.queue_settings import GOOD_FOR_S, KnownQueues, NatsQueueSettings
from pump.subscription import QueueSpec
from pump.testing import VirtualClock

ORDERS = NatsQueueSettings.from_spec(QueueSpec(name="orders"))


class Server:
    """Says what it has, and counts how often it is asked."""

    def __init__(self) -> None:
        self.consumer = ORDERS.consumer()
        self.asked_count = 0

    async def ask(self, operation: str, body: object = None) -> dict[str, Any]:
        self.asked_count += 1
        return {"config": self.consumer}

    async def call(self, operation: str, body: object = None, *, queue: str) -> dict[str, Any]:
        return {"config": ORDERS.stream(replicas=1, can_schedule=True)}


async def test_when_a_queue_is_known_then_it_is_not_asked_for_again() -> None:
    server = Server()
    known = KnownQueues(cast("JetStream", server), VirtualClock())

    facts = [await known.facts(ORDERS) for _ in range(3)]

    assert facts[0] is facts[2]
    assert server.asked_count == 1


async def test_when_a_queue_may_have_changed_then_it_is_asked_for_again() -> None:
    server, clock = Server(), VirtualClock()
    known = KnownQueues(cast("JetStream", server), clock)
    assert not (await known.facts(ORDERS)).is_strict

    server.consumer["max_ack_pending"] = 1
    assert not (await known.facts(ORDERS)).is_strict
    await clock.advance(GOOD_FOR_S)

    assert (await known.facts(ORDERS)).is_strict
    known.forget("orders")
    await known.facts(ORDERS)
    assert server.asked_count == 3
