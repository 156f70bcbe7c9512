"""aioboto3: calls on the event loop, and everything that reads files off it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from io import BytesIO
from typing import Any

from pump.crypto.aiobotocore_client import CredentialProvider, check_hosts
from pump.errors import ConfigurationError

from .sdk_session import config_options, make_client, make_session, missing, watch_replies
from .sdk_transport import Client, Held
from .settings import AwsSettings
from .transport import Reply, Request

_LARGE_BODY = 1 << 20
"""What aiohttp still takes as one piece."""


class Aioboto3:
    """An `Sdk` whose calls are tasks; a cancelled call is aborted and its connection closed.

    Service models, configuration and credentials come through a boto3 session, in threads:
    aioboto3 would read the same files on the event loop.
    """

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._source: Any = None
        self._session: Any = None
        self._clients = AsyncExitStack()

    async def open(self) -> None:
        self._source, self._session = await asyncio.to_thread(_make_sessions, self._settings)

    async def connect(self, service: str) -> Client:
        config = await asyncio.to_thread(_rehearse, self._source, service, self._settings)
        endpoint_url = self._settings.endpoint_url
        making = self._session.client(service, endpoint_url=endpoint_url, config=config)
        client = await self._clients.enter_async_context(making)
        watch_replies(client)
        check_hosts(client)
        client.meta.events.register("before-send", _send_in_pieces)
        if service == "s3":
            _send_once(client)
        return client

    async def perform(self, client: Client, operation: str, request: Request, held: Held) -> Reply:
        reply: Reply = await getattr(client, operation)(**request)
        stream = reply.get("Body")
        if stream is not None:
            try:
                reply["Body"] = await stream.read()
            finally:
                stream.close()
        return reply

    async def aclose(self) -> None:
        await self._clients.aclose()


def _make_sessions(settings: AwsSettings) -> tuple[Any, Any]:
    source = make_session(settings)
    try:
        import aioboto3
        from aiobotocore.session import AioSession
    except ImportError as error:
        raise missing("aioboto3") from error
    core = AioSession(profile=settings.profile)
    core.register_component("data_loader", source._session.get_component("data_loader"))
    core.register_component("credential_provider", CredentialProvider(source))
    session = aioboto3.Session(botocore_session=core, region_name=settings.region)
    # Reads the configuration files, once.
    _ = core.full_config
    return source, session


def _send_in_pieces(request: Any, **_: object) -> None:
    """Have a large body sent in pieces: as one it would hold up the loop, and aiohttp warns."""
    body = request.body
    if isinstance(body, bytes | bytearray) and len(body) > _LARGE_BODY:
        request.body = BytesIO(body)


def _send_once(client: Client) -> None:
    """Keep aiohttp from sending a PUT again by itself when its connection breaks.

    Nobody would know that it was sent twice, and S3 refuses a conditional write because of its
    own first half. The SDK tries again too, and says so (`RetryAttempts`). There is no setting
    for it: `ConfigurationError` where it cannot be turned off.
    """
    import aiohttp

    if "_retry_connection" not in getattr(aiohttp.ClientSession, "ATTRS", ()):
        remedy = "it may repeat writes unseen; use aiohttp 3.14, or transport='boto3'"
        raise ConfigurationError("aiohttp", aiohttp.__version__, remedy)
    http = client._endpoint.http_session
    make = http._get_session

    async def get(proxy_url: str | None) -> Any:
        session = await make(proxy_url)
        session._retry_connection = False
        return session

    http._get_session = get


def _rehearse(source: Any, service: str, settings: AwsSettings) -> Any:
    """Make a client that is not used, because the two sessions share what that loads.

    Returns the configuration of the one that will be used.
    """
    from aiobotocore.config import AioConfig

    make_client(source, service, settings).close()
    return AioConfig(**config_options(settings))
