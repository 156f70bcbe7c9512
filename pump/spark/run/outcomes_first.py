"""Outcomes first: a gateway whose consumers write what became of messages before they settle.

| `settle` is called with      | and the disk | the broker                                       |
|------------------------------|--------------|--------------------------------------------------|
| outcomes that have no row    | takes them   | is told                                          |
|                              | fails        | is told nothing; the settler tries again, and    |
|                              |              | when the lease is over the message comes again   |
| those whose rows are written | is not asked | is told                                          |
| what was not tried, or is    | is not asked | is told                                          |
| settled by hand              |              |                                                  |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from weakref import WeakKeyDictionary

from ...capabilities import Capabilities
from ...clock import Clock
from ...errors import UnsupportedOperation
from ...events import Event, LeaseLostEvent, OutcomeEvent
from ...loop.ending import Ending, outcome_event, status_of
from ...message import Delivery
from ...outcome import Refusal, Settlement
from ...ports import (
    AdminPort,
    ConsumerPort,
    Gateway,
    LeaseLosingPort,
    ProducerPort,
    SessionGateway,
    SessionPort,
)
from ...subscription import Subscription
from .gate import Gate
from .outcome_ledger import OutcomeLedger

_MAX_WAIT_S = 1.0


class OutcomesFirstPort:
    """A consumer port that records, then settles, and holds at most `flush` messages."""

    def __init__(
        self,
        port: ConsumerPort,
        subscription: str,
        ledger: OutcomeLedger,
        gate: Gate,
        *,
        flush: int,
        clock: Clock,
    ) -> None:
        self._port = port
        self.subscription = subscription
        self.held = 0
        """Messages received, and neither settled nor lost."""
        self._ledger = ledger
        self._gate = gate
        self._room = flush
        self._clock = clock
        self._roomy = asyncio.Event()
        # By settlement: the settler comes again with the same one, and lost ones just vanish.
        self._rows: MutableMapping[Ending, asyncio.Future[None]] = WeakKeyDictionary()

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """As the port does, within the room and the quota; without either it only waits.

        For `_MAX_WAIT_S` at most: at the end of a slice somebody waits for it to come back.
        """
        wait_s = min(wait_s, _MAX_WAIT_S)
        room = await self._reserve(max_count, wait_s)
        if not room:
            return ()
        count = 0
        try:
            deliveries = await self._port.receive(max_count=room, wait_s=wait_s)
            count = len(deliveries)
            self.held += count
            return deliveries
        finally:
            self._gate.received(count, reserved=room)
            self._give_back(room - count)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """As the port does, once every outcome is durable; `StorageFailed` when one cannot be."""
        await self._record(settlements)
        refusals = await self._port.settle(settlements)
        # What is refused is settled later, or lost, and the event of that gives it back.
        self.let_go(len(settlements) - len(refusals))
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """As the port does."""
        return await self._port.extend(deliveries, lease_s=lease_s)

    def when_lost(self, tell: Callable[[Sequence[Delivery]], None]) -> None:
        """As the port does, where it does."""
        if isinstance(self._port, LeaseLosingPort):
            self._port.when_lost(tell)

    async def aclose(self) -> None:
        """As the port does; what was not settled is not in our hands any more."""
        self.let_go(self.held)
        await self._port.aclose()

    def let_go(self, count: int) -> None:
        """So many messages are out of our hands."""
        self.held -= count
        self._gate.gone(count)
        self._give_back(count)

    def _give_back(self, count: int) -> None:
        self._room += count
        if count:
            self._roomy.set()

    async def _reserve(self, max_count: int, wait_s: float) -> int:
        try:
            async with self._clock.timeout(wait_s):
                while self._room <= 0 or self._gate.is_spent:
                    self._roomy.clear()
                    await self._roomy.wait()
        except TimeoutError:
            return 0
        taken = self._gate.take(min(max_count, self._room))
        self._room -= taken
        return taken

    async def _record(self, settlements: Sequence[Settlement]) -> None:
        endings = [each for each in settlements if isinstance(each, Ending)]
        events: list[OutcomeEvent] = []
        fresh: list[Ending] = []
        for ending in endings:
            status = status_of(ending)
            if status is not None and not self._has_row(ending):
                events.append(outcome_event(ending, status, self.subscription))
                fresh.append(ending)
        if events:
            written = self._ledger.write(events)
            for ending in fresh:
                self._rows[ending] = written
        for written in {self._rows[each] for each in endings if each in self._rows}:
            if not written.done():
                # Another settlement may wait for it too; and the rows will be there anyhow.
                await asyncio.shield(written)
            else:
                written.result()

    def _has_row(self, ending: Ending) -> bool:
        """Whether its row is written, or about to be; one that failed is written anew."""
        written = self._rows.get(ending)
        return written is not None and (not written.done() or written.exception() is None)


class OutcomesFirst:
    """A gateway in front of another; only its consumers differ."""

    def __init__(
        self, gateway: Gateway, ledger: OutcomeLedger, gate: Gate, *, flush: int, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._ledger = ledger
        self._gate = gate
        self._flush = flush
        self._clock = clock
        self._ports: list[OutcomesFirstPort] = []

    @property
    def capabilities(self) -> Capabilities:
        """Those of the gateway behind."""
        return self._gateway.capabilities

    async def open(self) -> None:
        """Open the gateway behind."""
        await self._gateway.open()

    async def aclose(self) -> None:
        """Close the gateway behind."""
        await self._gateway.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """A consumer that records before it settles."""
        port = OutcomesFirstPort(
            self._gateway.consumer(subscription),
            subscription.name,
            self._ledger,
            self._gate,
            flush=self._flush,
            clock=self._clock,
        )
        self._ports.append(port)
        return port

    def producer(self, queue: str) -> ProducerPort:
        """That of the gateway behind."""
        return self._gateway.producer(queue)

    def admin(self) -> AdminPort:
        """That of the gateway behind."""
        return self._gateway.admin()

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """As the gateway behind does: sessions are consumed by hand, and not recorded."""
        if not isinstance(self._gateway, SessionGateway):
            name = self._gateway.capabilities.gateway
            raise UnsupportedOperation(name, "sessions", "it has none")
        return await self._gateway.accept_session(subscription, session, wait_s=wait_s)

    def note(self, event: Event) -> None:
        """An observer: a message whose lease is lost is out of our hands, unsettled."""
        if not isinstance(event, LeaseLostEvent):
            return
        for port in self._ports:
            if port.subscription == event.subscription and port.held:
                port.let_go(1)
                return
