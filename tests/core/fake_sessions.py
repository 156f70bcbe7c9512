"""A broker with sessions that can be chosen, in memory: what `SessionPort` asks of a gateway."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pump.clock import Clock
from pump.errors import GatewayError, InvalidReceipt, SessionLockLost
from pump.message import Delivery, Message, new_id
from pump.outcome import Ack, Defer, Refusal, Settlement
from pump.subscription import Subscription

from .faulty_gateway import FaultyGateway


@attrs.define(eq=False)
class _Kept:
    message: Message
    visible_at_s: float = 0.0
    attempt: int = 0
    receipt: str | None = None


@attrs.define(eq=False)
class _Line:
    """One session: its messages in order, and who holds its lock until when."""

    messages: list[_Kept] = attrs.field(factory=list)
    holder: FakeSession | None = None
    ends_at_s: float = 0.0


class SessionedGateway(FaultyGateway):
    """A faulty memory gateway whose messages of `put` are in sessions.

    More operations to fail: renew, release. `refusal` is the answer to every settlement,
    `ceiling_s` limits a lock in total, and without `locks_end` it lasts until it is released.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, has_sessions=True, has_session_choice=True)
        self.clock = clock
        self.lines: dict[str, _Line] = {}
        self.refusal: GatewayError | None = None
        self.locks_end = True
        self.ceiling_s: float | None = None

    def put(self, session: str, *ids: str) -> None:
        """Have messages in a session."""
        line = self.lines.setdefault(session, _Line())
        line.messages += [_Kept(Message(body=b"{}", id=id_, group=session)) for id_ in ids]

    def left(self, session: str) -> list[str]:
        """The messages of a session that nobody has acked."""
        return [kept.message.id for kept in self.lines[session].messages]

    def break_lock(self, session: str) -> None:
        """Take the lock from its holder, unheard."""
        self.lines[session].holder = None

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> FakeSession | None:
        for pause_s in (0.0, wait_s):
            await self.clock.sleep(pause_s)
            for name, line in self.lines.items():
                is_wanted = bool(line.messages) if session is None else name == session
                if is_wanted and self._is_free(line):
                    return FakeSession(self, name, line, subscription)
        return None

    def _is_free(self, line: _Line) -> bool:
        return line.holder is None or self.clock.now_s() >= line.ends_at_s


class FakeSession:
    """One session, locked."""

    def __init__(
        self, gateway: SessionedGateway, session: str, line: _Line, subscription: Subscription
    ) -> None:
        self.id = session
        self._gateway = gateway
        self._line = line
        self._queue = subscription.queue
        self._lease_s = subscription.lease.total_seconds()
        self._accepted_at_s = gateway.clock.now_s()
        line.holder = self
        for kept in line.messages:
            kept.receipt = None
        self._ends_at_s = line.ends_at_s = self._new_end_s()

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._ends_at_s if self._gateway.locks_end else None

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        await self._gateway.pass_through("receive")
        for pause_s in (0.0, wait_s):
            await self._gateway.clock.sleep(pause_s)
            if found := self._available()[:max_count]:
                return [self._deliver(kept) for kept in found]
        return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        await self._gateway.pass_through("settle")
        if self._gateway.refusal is not None:
            return [Refusal(each.delivery, self._gateway.refusal) for each in settlements]
        return [
            Refusal(each.delivery, error)
            for each in settlements
            if (error := self._settle(each)) is not None
        ]

    async def renew(self) -> None:
        await self._gateway.pass_through("renew")
        if not self._is_held():
            raise SessionLockLost(self._queue, self.id)
        self._ends_at_s = self._line.ends_at_s = self._new_end_s()

    async def aclose(self) -> None:
        await self._gateway.pass_through("release")
        if self._is_held():
            self._line.holder = None
            for kept in self._line.messages:
                kept.receipt = None

    def _is_held(self) -> bool:
        is_over = self._gateway.locks_end and self._gateway.clock.now_s() >= self._ends_at_s
        return self._line.holder is self and not is_over

    def _new_end_s(self) -> float:
        end_s = self._gateway.clock.now_s() + self._lease_s
        if self._gateway.ceiling_s is None:
            return end_s
        return min(end_s, self._accepted_at_s + self._gateway.ceiling_s)

    def _available(self) -> list[_Kept]:
        available = []
        for kept in self._line.messages:
            if kept.visible_at_s > self._gateway.clock.now_s():
                break
            if kept.receipt is None:
                available.append(kept)
        return available

    def _deliver(self, kept: _Kept) -> Delivery:
        kept.receipt, kept.attempt = new_id(), kept.attempt + 1
        return Delivery(
            message=kept.message,
            queue=self._queue,
            receipt=kept.receipt,
            attempt=kept.attempt,
            lease_expires_at_s=self._ends_at_s,
        )

    def _settle(self, settlement: Settlement) -> GatewayError | None:
        receipt = settlement.delivery.receipt
        if not self._is_held():
            return SessionLockLost(self._queue, self.id)
        kept = next((each for each in self._line.messages if each.receipt == receipt), None)
        if kept is None:
            return InvalidReceipt(self._queue, receipt)
        match settlement.action:
            case Ack():
                self._line.messages.remove(kept)
            case Defer(delay_s=delay_s):
                kept.receipt = None
                kept.visible_at_s = self._gateway.clock.now_s() + delay_s
            case _:
                kept.receipt = None
        self._gateway.record.settled.append((settlement.delivery, settlement.action))
        return None
