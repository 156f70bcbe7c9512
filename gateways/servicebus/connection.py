"""The connections of one gateway: for each queue one that receives, one that is asked, one that
sends. Each is made at its first use; opening one takes the SDK half a second.

What was received is not settled through the link it came by, but by its lock, on the connection
that is asked: so a settlement never waits for a receive, and a lock outlives its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pump.clock import Clock
from pump.errors import ConnectionFailed
from pump.tasks import in_thread

from .handle import CLOSING_S, STALE_S, Chores, Handle, close
from .settings import ServiceBusSettings
from .versions import MINIMUM, check_sdk

if TYPE_CHECKING:
    from .sdk import Administration, Client, Receiver, Sender


class Connections:
    """All handles of a gateway."""

    def __init__(self, settings: ServiceBusSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.chores = Chores()
        self._credential: Any = None
        self._client: Client | None = None
        self._administration: Administration | None = None
        self._handles: dict[tuple[str, str], Handle[Any]] = {}
        self._is_closed = True
        self._opening = asyncio.Lock()

    @property
    def address(self) -> str:
        """Where the namespace is, without a secret."""
        return self.settings.address

    async def open(self) -> None:
        """Check the SDK, and that somebody listens; who we are is found out by the first call."""
        async with self._opening:
            if not self._is_closed:
                return
            packages = [name for name in MINIMUM if self._needs(name)]
            await in_thread(check_sdk, packages)
            await self._knock()
            # The SDK reads files and asks the machine who it is.
            await in_thread(self._make)
            self._is_closed = False

    async def aclose(self) -> None:
        """Close everything. Idempotent."""
        self._is_closed = True
        handles = list(self._handles.values())
        self._handles.clear()
        try:
            async with self.clock.timeout(CLOSING_S):
                await asyncio.gather(*(handle.aclose() for handle in handles))
                await self.chores.finish()
        except TimeoutError:
            await self.chores.abort()
        finally:
            await self._let_go()

    def sender(self, queue: str) -> Handle[Sender]:
        """What sends to a queue."""
        from . import sdk

        read_s = self.settings.read_s
        return self._handle(
            ("send", queue), lambda: sdk.sender_of(self.client, queue, read_s=read_s)
        )

    def receiver(self, queue: str) -> Handle[Receiver]:
        """What receives from a queue."""
        return self._handle(("receive", queue), lambda: self.new_receiver(queue))

    def clerk(self, queue: str) -> Handle[Receiver]:
        """What is asked about a queue: to settle, renew, and look."""
        return self._handle(("ask", queue), lambda: self.new_receiver(queue))

    def new_receiver(self, queue: str) -> Receiver:
        """A receiver of the caller's own; connects nothing."""
        from . import sdk

        return sdk.receiver_of(self.client, queue, read_s=self.settings.read_s)

    @property
    def client(self) -> Client:
        """What makes senders and receivers."""
        if self._client is None:
            raise ConnectionFailed(self.address, "the gateway is closed")
        return self._client

    @property
    def administration(self) -> Administration:
        """What makes and describes queues."""
        if self._administration is None:
            raise ConnectionFailed(self.address, "the gateway is closed")
        return self._administration

    def own(self, make: Callable[[], Any], *, stale_s: float | None = STALE_S) -> Handle[Any]:
        """A handle that is its caller's to close."""
        return Handle(
            make,
            self.chores,
            clock=self.clock,
            timeout_s=self.settings.request_timeout_s,
            stale_s=stale_s,
        )

    def _handle(self, key: tuple[str, str], make: Callable[[], Any]) -> Handle[Any]:
        if self._is_closed:
            raise ConnectionFailed(self.address, "the gateway is closed")
        if key not in self._handles:
            self._handles[key] = self.own(make)
        return self._handles[key]

    def _needs(self, package: str) -> bool:
        return package != "azure-identity" or self.settings.key is None

    def _make(self) -> None:
        from . import sdk

        sdk.hush()
        self._credential = sdk.credential_of(self.settings)
        self._client = sdk.client_of(self.settings, self._credential)
        self._administration = sdk.administration_of(self.settings, self._credential)

    async def _knock(self) -> None:
        settings = self.settings
        try:
            async with self.clock.timeout(settings.request_timeout_s):
                _, writer = await asyncio.open_connection(settings.namespace, settings.amqp_port)
        except (OSError, TimeoutError) as error:
            detail = str(error) or f"no answer within {settings.request_timeout_s:g} s"
            raise ConnectionFailed(self.address, detail) from error
        writer.close()

    async def _let_go(self) -> None:
        client, self._client = self._client, None
        administration, self._administration = self._administration, None
        credential, self._credential = self._credential, None
        for each in (client, administration, credential):
            if each is not None:
                await close(each, self.clock)
