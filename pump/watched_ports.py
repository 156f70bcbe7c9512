"""Watched ports: what a consumer by hand does, told to the telemetry. Pumps tell it themselves, and
know more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from .clock import Clock
from .errors import GatewayError
from .message import Delivery
from .observability.telemetry import Telemetry
from .outcome import Refusal, Settlement
from .ports import ConsumerPort, SessionPort
from .subscription import Subscription


class PortWatch:
    """Tells of the receives and settle calls of one subscription."""

    def __init__(self, telemetry: Telemetry, subscription: Subscription, clock: Clock) -> None:
        self.telemetry = telemetry
        self.subscription = subscription
        self._clock = clock

    async def receive(self, receiving: Awaitable[Sequence[Delivery]]) -> Sequence[Delivery]:
        """Await a receive."""
        asked_at_s = self._clock.now_s()
        try:
            deliveries = await receiving
        except GatewayError as error:
            self.telemetry.failed("receive", self.subscription.queue, error)
            raise
        waited_s = self._clock.now_s() - asked_at_s
        self.telemetry.received(self.subscription, deliveries, waited_s=waited_s)
        return deliveries

    async def settle(
        self, settlements: Sequence[Settlement], settling: Awaitable[Sequence[Refusal]]
    ) -> Sequence[Refusal]:
        """Await a settle call. What it changed, and which leases it found lost, the loop's
        reporter tells.
        """
        with self.telemetry.settling(self.subscription, settlements):
            return await settling


class WatchedConsumerPort:
    """A consumer's port, watched."""

    def __init__(self, port: ConsumerPort, watch: PortWatch) -> None:
        self._port = port
        self._watch = watch

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._watch.receive(self._port.receive(max_count=max_count, wait_s=wait_s))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await self._watch.settle(settlements, self._port.settle(settlements))

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        watch = self._watch
        try:
            refusals = await self._port.extend(deliveries, lease_s=lease_s)
        except GatewayError as error:
            watch.telemetry.failed("extend", watch.subscription.queue, error)
            raise
        watch.telemetry.extended(watch.subscription, len(deliveries) - len(refusals))
        return refusals

    async def aclose(self) -> None:
        await self._port.aclose()


class WatchedSessionPort:
    """A session's port, watched. Its lock is one lease, whatever it holds."""

    def __init__(self, port: SessionPort, watch: PortWatch) -> None:
        self._port = port
        self._watch = watch

    @property
    def id(self) -> str:
        return self._port.id

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._port.lock_expires_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._watch.receive(self._port.receive(max_count=max_count, wait_s=wait_s))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await self._watch.settle(settlements, self._port.settle(settlements))

    async def renew(self) -> None:
        watch = self._watch
        try:
            await self._port.renew()
        except GatewayError as error:
            watch.telemetry.failed("extend", watch.subscription.queue, error)
            raise
        watch.telemetry.extended(watch.subscription, 1)

    async def aclose(self) -> None:
        await self._port.aclose()
