"""The transport over an SDK: what boto3 and aioboto3 have in common, which is nearly all."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from types import TracebackType
from typing import Protocol

from pump.clock import Clock
from pump.deadlines import Deadlines
from pump.errors import ConnectionFailed, CredentialsExpired, PumpError

from .clients import Client, Clients
from .connections import Connections, Held, closed
from .errors import fault_of
from .settings import AwsSettings
from .transport import Polling, Reply, Request

CLOSE_GRACE_S = 1.0
"""How long closing waits for calls that are not long polls, and then for them to unwind."""


class Sdk(Protocol):
    """One SDK; the only thing in which two transports differ. Raises the SDK's own errors."""

    async def open(self) -> None:
        """Import the SDK and make its session, off the event loop."""

    async def connect(self, service: str) -> Client:
        """Make the client of a service, without network except to find credentials."""

    async def perform(self, client: Client, operation: str, request: Request, held: Held) -> Reply:
        """Perform one operation on the connection that is held for it."""

    async def aclose(self) -> None:
        """Close the clients; calls that still run may fail."""


class SdkTransport:
    """A `Transport` over boto3 or aioboto3."""

    def __init__(self, sdk: Sdk, settings: AwsSettings, clock: Clock) -> None:
        self._sdk = sdk
        self._clock = clock
        self._connections = Connections(
            settings.max_connections,
            long_poll_limit=settings.long_poll_limit,
            patience_s=settings.pool_timeout_s,
            clock=clock,
        )
        # Polls wait for whole seconds, so these are few.
        self._deadlines = cache(partial(Deadlines, clock))
        self._clients = Clients(self._connect)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        async with self._opening:
            self._check_open("aws")
            if self._is_open:
                return
            with _Translated("aws", "open", "aws"):
                await self._sdk.open()
            self._is_open = True

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        name = target or service
        self._check_open(name)
        client = self._clients.made(service) or await self._client(service, name)
        async with self._connections.hold(name, is_long_poll=polling is not None) as held:
            if polling is None:
                with _Translated(service, operation, name):
                    return await self._sdk.perform(client, operation, request, held)
            polling.started_at_s = self._clock.now_s()
            try:
                async with self._deadlines(polling.patience_s).begin():
                    with _Translated(service, operation, name):
                        return await self._sdk.perform(client, operation, request, held)
            except TimeoutError:
                detail = f"no answer to {operation} within {polling.patience_s:g} s"
                raise ConnectionFailed(name, detail) from None

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="pumphouse-aws-close")
        await asyncio.wait([self._closing])
        self._closing.result()

    async def _client(self, service: str, target: str) -> Client:
        try:
            with _Translated(service, "connect", target):
                return await self._clients.of(service)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Without a request to cancel, what was cancelled is the making of the client.
            if task is not None and not task.cancelling():
                raise closed(target) from None
            raise

    def _check_open(self, target: str) -> None:
        if self._closing is not None:
            raise closed(target)

    async def _connect(self, service: str) -> Client:
        await self.open()
        return await self._sdk.connect(service)

    async def _close(self) -> None:
        await self._clients.aclose()
        await self._connections.aclose(grace_s=CLOSE_GRACE_S)
        closing = asyncio.create_task(self._sdk.aclose(), name="pumphouse-aws-sdk-close")
        # Real sockets, so in real time even when a test's clock stands still.
        await asyncio.wait([closing], timeout=CLOSE_GRACE_S)
        if closing.done():
            closing.result()
        else:
            closing.cancel()


class _Translated:
    """Raises what an SDK raised inside as one of our errors. Passed by every call, so it is no
    generator, which would take several times as long.
    """

    __slots__ = ("_operation", "_service", "_target")

    def __init__(self, service: str, operation: str, target: str) -> None:
        self._service = service
        self._operation = operation
        self._target = target

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whatever else: the SDKs raise their own, urllib3's and aiohttp's errors.
        if not isinstance(error, Exception) or isinstance(error, PumpError):
            return
        fault = fault_of(
            error, service=self._service, operation=self._operation, target=self._target
        )
        raise fault from (None if _is_telling(error, fault) else error)


def _is_telling(error: Exception, fault: PumpError) -> bool:
    """Whether a secret is in an error, or in what led to it."""
    # AWS explains a wrong signature with the signed text, session token and all; and aiohttp what
    # a proxy refused with the proxy's URL, password and all.
    is_of_proxy = type(error).__name__ == "ProxyConnectionError"
    return is_of_proxy or isinstance(fault, CredentialsExpired)
