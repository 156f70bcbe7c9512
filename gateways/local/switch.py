"""The switch: one broker to the ports, whichever process hosts the engine at the moment."""

from __future__ import annotations

from collections.abc import Sequence

from pump.errors import ConnectionFailed
from pump.message import Delivery, Message
from pump.outcome import Action
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from .._engine.broker import Broker, Grant, SessionBroker
from .._engine.engine import Engine
from .._engine.sessions import EngineSessions
from .client import Client
from .client_sessions import ClientSessions


class Switch:
    """Forwards to the engine in this process, or to the client of another's."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._owner = ""
        self._current: Engine | Client | None = None

    def turn_to(self, current: Engine | Client | None, *, owner: str = "") -> None:
        """Forward to this one from now on; `owner` holds what an engine leases."""
        self._current = current
        self._owner = owner

    @property
    def current(self) -> Broker:
        """Where operations go."""
        if self._current is None:
            raise ConnectionFailed(self._target, "the gateway is not open; await open() first")
        return self._current

    async def send(
        self, queue: str, messages: Sequence[Message], *, delay_s: float = 0.0
    ) -> list[str]:
        return await self.current.send(queue, messages, delay_s=delay_s)

    async def receive(
        self, queue: str, *, max_count: int, wait_s: float, lease_s: float
    ) -> list[Delivery]:
        if isinstance(self._current, Engine):
            return await self._current.receive(
                queue, max_count=max_count, wait_s=wait_s, lease_s=lease_s, owner=self._owner
            )
        return await self.current.receive(
            queue, max_count=max_count, wait_s=wait_s, lease_s=lease_s
        )

    async def settle(
        self, queue: str, receipts: Sequence[str], actions: Sequence[Action]
    ) -> list[int]:
        return await self.current.settle(queue, receipts, actions)

    async def extend(self, queue: str, receipts: Sequence[str], *, lease_s: float) -> list[int]:
        return await self.current.extend(queue, receipts, lease_s=lease_s)

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        await self.current.ensure(spec, make)

    async def queues(self) -> list[QueueStats]:
        return await self.current.queues()

    async def peek(self, queue: str, *, max_count: int) -> list[Message]:
        return await self.current.peek(queue, max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await self.current.purge(queue)

    @property
    def current_sessions(self) -> SessionBroker:
        """Where operations on sessions go."""
        if isinstance(self._current, Engine):
            return EngineSessions(self._current, self._owner)
        if isinstance(self._current, Client):
            return ClientSessions(self._current)
        raise ConnectionFailed(self._target, "the gateway is not open; await open() first")


class SwitchedSessions:
    """Sessions on whichever engine the switch is turned to: they outlive their host."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    async def accept(
        self, queue: str, session: str | None, *, wait_s: float, lease_s: float
    ) -> Grant | None:
        sessions = self._switch.current_sessions
        return await sessions.accept(queue, session, wait_s=wait_s, lease_s=lease_s)

    async def receive(
        self, queue: str, grant: Grant, *, max_count: int, wait_s: float
    ) -> list[Delivery]:
        sessions = self._switch.current_sessions
        return await sessions.receive(queue, grant, max_count=max_count, wait_s=wait_s)

    async def renew(self, queue: str, grant: Grant, *, lease_s: float) -> float:
        return await self._switch.current_sessions.renew(queue, grant, lease_s=lease_s)

    async def release(self, queue: str, grant: Grant) -> None:
        await self._switch.current_sessions.release(queue, grant)
