"""boto3: blocking calls, each in a thread of its own while it lasts."""

from __future__ import annotations

import asyncio
from typing import Any

from pump.tasks import in_thread

from .sdk_session import make_client, make_session
from .sdk_transport import Client, Held
from .settings import AwsSettings
from .threads import DaemonThreads
from .transport import Reply, Request


class Boto3:
    """An `Sdk` whose calls block threads, at most as many as there may be connections.

    A cancelled call goes on in its thread and keeps its connection until it is done; what it
    brings is dropped.
    """

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._session: Any = None
        self._clients: list[Client] = []
        self._threads = DaemonThreads(settings.max_connections, "pumphouse-aws")

    async def open(self) -> None:
        self._session = await in_thread(make_session, self._settings)

    async def connect(self, service: str) -> Client:
        client = await in_thread(make_client, self._session, service, self._settings)
        self._clients.append(client)
        return client

    async def perform(self, client: Client, operation: str, request: Request, held: Held) -> Reply:
        work = self._threads.submit(_perform, client, operation, request)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            held.keep_until(work)
            raise

    async def aclose(self) -> None:
        try:
            await in_thread(_close, self._clients)
        finally:
            self._threads.shutdown()


def _perform(client: Client, operation: str, request: Request) -> Reply:
    reply: Reply = getattr(client, operation)(**request)
    stream = reply.get("Body")
    if stream is not None:
        try:
            reply["Body"] = stream.read()
        finally:
            stream.close()
    return reply


def _close(clients: list[Client]) -> None:
    for client in clients:
        client.close()
