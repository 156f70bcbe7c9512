"""What processes do in a run: send, receive, take their time, renew, settle or not, and die."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs

from gateways.s3.layout import StoredQueue
from pump.errors import GatewayError
from pump.message import Message
from pump.outcome import ABANDON, ACK, Action, Defer, Refusal, Settlement

from .ledger import Claim, Ledger
from .machines import Process

NOT_FOR_LONG_S = 0.05


@attrs.frozen(kw_only=True)
class Plan:
    """How much of what a run has."""

    nodes: int = 3
    max_messages: int = 10
    chaos_s: float = 25.0
    lease_s: float = 3.0
    max_receive_count: int | None = None
    has_delays: bool = True
    pauses_every_s: float = 5.0
    zeal: float = 0.7
    """How likely a message is acked when it was handled in time."""

    @classmethod
    def drawn(cls, rng: Random, *, is_strict: bool) -> Plan:
        return cls(
            nodes=rng.choice((1, 2, 2, 3, 3, 4)),
            max_messages=rng.choice((1, 4, 10, 20)),
            chaos_s=rng.uniform(8.0, 25.0),
            lease_s=rng.choice((2.0, 3.0, 5.0, 8.0)),
            max_receive_count=rng.choice((None, None, 3)),
            has_delays=not is_strict,
            pauses_every_s=rng.choice((2.0, 5.0, 50.0)),
            zeal=rng.choice((0.3, 0.7, 1.0)),
        )

    @property
    def hurried(self) -> Plan:
        """Longer, with shorter leases, and so with shorter pauses."""
        return attrs.evolve(self, lease_s=min(self.lease_s, 3.0), chaos_s=self.chaos_s + 8.0)


@attrs.define
class Worker:
    """One process at work on the queue."""

    process: Process
    queue: StoredQueue
    ledger: Ledger
    plan: Plan
    is_calm: Callable[[], bool]

    def start(self) -> None:
        self.process.start(self.send(), "send")
        self.process.start(self.consume(), "receive")

    @property
    def _now_s(self) -> float:
        return self.process.loop.now_s

    async def send(self) -> None:
        """Messages, one or a few at a time, until there are enough."""
        rng = self.process.rng
        while True:
            await self._work(rng.choice((0.0, 0.5, 2.0)))
            count = rng.choice((1, 1, 2, 5))
            if self.is_calm() or len(self.ledger.stories) + count > self.plan.max_messages:
                return
            numbers = self.ledger.sending(count, self._now_s)
            messages = [Message(body=b"%d" % number, id=f"m{number}") for number in numbers]
            delay_s = rng.choice((0.0, 0.0, 1.5)) if self.plan.has_delays else 0.0
            try:
                await self.queue.send(messages, delay_s=delay_s)
            except GatewayError:
                continue  # It may be sent, and may yet come.
            self.ledger.sent(numbers, self.process, self._now_s)

    async def consume(self) -> None:
        """Receive for ever; each delivery is handled by a task of its own."""
        rng, queue = self.process.rng, self.queue
        while True:
            patience_s = rng.choice((0.2, 1.0, 3.0)) if rng.random() < 0.1 else None
            try:
                async with self.process.clock.timeout(patience_s):
                    deliveries = await queue.receive(
                        max_count=rng.choice((1, 1, 3, 10)),
                        wait_s=rng.choice((0.0, 1.0, 2.0)),
                        lease_s=self.plan.lease_s,
                    )
            except (GatewayError, TimeoutError):
                deliveries = []
            for delivery in deliveries:
                claim = self.ledger.claimed(self.process, delivery, self._now_s)
                self.process.start(self.handle(claim), f"handle {delivery.message.id}")
            if not deliveries:
                await self._work(0.3)

    async def handle(self, claim: Claim) -> None:
        """Work on a message, keep its lease or not, and settle it or not, in time or too late."""
        rng = self.process.rng
        while True:
            share = rng.choice((0.0, 0.3, 1.0))
            # In the end all must get done: a handler that outlasts its lease would start anew.
            await self._work(min(share, 0.3 if self.is_calm() else 1.0) * self.plan.lease_s)
            if self.is_calm() or rng.random() > 0.3:
                break
            if not await self._extend(claim):
                break
        chance = rng.random()
        if self.is_calm() or chance < self.plan.zeal:
            await self._settle(claim, ACK)
        elif chance < 0.9:
            await self._settle(claim, rng.choice((ABANDON, Defer(), Defer(1.0))))
        # Else it is forgotten, and comes back when its lease is over.

    async def _extend(self, claim: Claim) -> bool:
        """Whether there is any use in going on."""
        began_s, process = self._now_s, self.process
        until_s = process.machine.true_s(process.machine.local_s() + self.plan.lease_s)
        try:
            refusals = await self.queue.extend([claim.delivery], lease_s=self.plan.lease_s)
        except GatewayError:
            return True
        if not refusals:
            self.ledger.extended(claim, began_s=began_s, until_s=until_s, now_s=self._now_s)
        elif _is_final(refusals):
            self.ledger.refused(claim, now_s=self._now_s, what="extension")
            return self.process.rng.random() < 0.5
        return True

    async def _settle(self, claim: Claim, action: Action) -> None:
        """Ask once; sometimes again, as a zombie that does not know what it is."""
        began_s = self._now_s
        self.ledger.settling(claim, action)
        try:
            refusals = await self.queue.settle([Settlement(claim.delivery, action)])
        except GatewayError:
            return
        if not refusals:
            self.ledger.settled(claim, began_s=began_s, now_s=self._now_s)
        elif _is_final(refusals):
            self.ledger.refused(claim, now_s=self._now_s, what=type(action).__name__.lower())

    async def _work(self, mean_s: float) -> None:
        await self.process.clock.sleep(NOT_FOR_LONG_S + mean_s * self.process.rng.uniform(0.3, 1.7))


def _is_final(refusals: list[Refusal]) -> bool:
    return all(refusal.is_final for refusal in refusals)
