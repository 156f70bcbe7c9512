"""Sessions on the engine of another process."""

from __future__ import annotations

from pump.message import Delivery

from .._engine.broker import Grant
from . import wire
from .client import Client


class ClientSessions:
    """Asks the host. Its token makes a session the same one for the next host."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def accept(
        self, queue: str, session: str | None, *, wait_s: float, lease_s: float
    ) -> Grant | None:
        number, _ = self._client.next_number()
        request = wire.AcceptSession(number, queue, session, wait_s, lease_s)
        granted = self._client.read_as(wire.decode_granted, await self._client.call(request))
        if granted is None:
            return None
        expires_at_s = self._client.ends_at_s(granted.expires_at_s, granted.left_s)
        return Grant(granted.session, granted.token, expires_at_s)

    async def receive(
        self, queue: str, grant: Grant, *, max_count: int, wait_s: float
    ) -> list[Delivery]:
        number, _ = self._client.next_number()
        request = wire.ReceiveInSession(
            number, queue, grant.session, grant.token, max_count, wait_s
        )
        return self._client.read_deliveries(queue, await self._client.call(request))

    async def renew(self, queue: str, grant: Grant, *, lease_s: float) -> float:
        number, _ = self._client.next_number()
        asked_at_s = self._client.clock.now_s()
        request = wire.RenewSession(
            number, queue, grant.session, grant.token, lease_s, self._client.host_s(asked_at_s)
        )
        self._client.read_as(wire.decode_seconds, await self._client.call(request))
        return asked_at_s + lease_s

    async def release(self, queue: str, grant: Grant) -> None:
        number, _ = self._client.next_number()
        await self._client.call(wire.ReleaseSession(number, queue, grant.session, grant.token))
