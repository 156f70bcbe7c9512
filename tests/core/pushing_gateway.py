"""A gateway whose messages also come as events, and a record of what it was told beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pump.errors import ConfigurationError
from pump.message import Delivery, Message
from pump.outcome import Action, Defer, Refusal, Settlement
from pump.ports import PushedRecord, PushPort
from pump.subscription import Subscription

from .faulty_gateway import FaultyGateway


def a_record(n: int, *, queue: str = "orders", **fields: Any) -> dict[str, Any]:
    """A record of a piece of work; its id is `r-` and the number."""
    return {"id": f"r-{n}", "queue": queue, "body": f'{{"n": {n}}}', **fields}


class PushingGateway(FaultyGateway):
    """A faulty gateway that invokes functions. Operations more: push, fetch."""

    def __init__(self, clock: Any, **capabilities: Any) -> None:
        super().__init__(clock, **capabilities)
        self.pushed: list[tuple[str, Action]] = []
        """The message ids that the provider was told of beside the answer, and what."""
        self.answered: list[bool] = []
        """What each settlement said of the answer to come."""
        self.fetched: list[str] = []
        self.clock = clock

    def pushed_records(self, event: object) -> Sequence[PushedRecord]:
        if not isinstance(event, dict):
            raise ConfigurationError("event", event, "give a dict")
        return [
            PushedRecord(
                id=each["id"], source=each["queue"], raw=each, defect=each.get("defect", "")
            )
            for each in event["Records"]
        ]

    def is_pushed_to(self, record: PushedRecord, subscription: Subscription) -> bool:
        return record.source == subscription.queue

    def push_port(self, subscription: Subscription) -> PushPort:
        return _Port(self)


class _Port:
    def __init__(self, gateway: PushingGateway) -> None:
        self._gateway = gateway

    def read(self, record: PushedRecord, *, lease_s: float) -> Delivery:
        raw = record.raw
        return Delivery(
            message=Message(body=raw["body"].encode(), id=record.id, group=raw.get("group")),
            queue=record.source,
            receipt=record.id,
            attempt=raw.get("attempt", 1),
            lease_expires_at_s=self._gateway.clock.now_s() + lease_s,
        )

    async def fetch(self, delivery: Delivery) -> Delivery | Defer:
        self._gateway.fetched.append(delivery.message.id)
        if self._gateway.is_broken("fetch"):
            return Defer(7.0)
        return delivery

    async def settle(
        self, settlements: Sequence[Settlement], *, is_answered: bool
    ) -> Sequence[Refusal]:
        await self._gateway.pass_through("push")
        self._gateway.answered.append(is_answered)
        self._gateway.pushed += [(each.delivery.message.id, each.action) for each in settlements]
        return ()

    async def aclose(self) -> None: ...
