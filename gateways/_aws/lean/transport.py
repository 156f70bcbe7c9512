"""The lean transport: an `Sdk` that performs what costs by itself, and leaves the rest to boto3."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from pump.clock import SYSTEM_CLOCK, Clock
from pump.tasks import in_thread

from ..sdk import PACKAGES, Boto3, check_versions
from ..sdk_transport import Client, HeldConnection
from ..settings import AwsSettings, TransportKind
from ..transport import Reply, Request

if TYPE_CHECKING:
    from .building import Blueprint
    from .http_session import Elsewhere, HttpSession
    from .service import LeanService

    Build = Callable[[str, Client, AwsSettings], Blueprint | None]


@attrs.frozen(kw_only=True)
class _LeanClient:
    """A client of boto3, and what performs some of its operations in its place."""

    sdk: Client
    service: LeanService | None


class Lean:
    """An `Sdk` over boto3 whose frequent calls are requests of our own, on the event loop.

    boto3 finds the credentials and the endpoints, and performs every operation that is not on
    the lists of `json_protocol` and `rest_s3`. Retries wait in real time, as an SDK's do, whatever
    the clock of the gateway is.
    """

    def __init__(self, settings: AwsSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._boto3 = Boto3(attrs.evolve(settings, transport=TransportKind.BOTO3))
        self._build: Build | None = None
        self._sessions: list[HttpSession] = []

    async def open(self) -> None:
        self._build = await in_thread(_load)
        await self._boto3.open()

    async def connect(self, service: str) -> Client:
        sdk_client = await self._boto3.connect(service)
        return _LeanClient(sdk=sdk_client, service=await self._serve(service, sdk_client))

    async def perform(
        self, client: _LeanClient, operation: str, request: Request, held: HeldConnection
    ) -> Reply:
        service = client.service
        planned = None if service is None else service.protocol.plan(operation, request)
        if service is None or planned is None:
            return await self._boto3.perform(client.sdk, operation, request, held)
        reply = await service.perform(planned)
        # Asked of the reply, since the class of what is no reply comes with aiohttp.
        if isinstance(reply, dict):
            return reply
        return await self._follow(client, operation, request, held, reply)

    async def aclose(self) -> None:
        try:
            for session in self._sessions:
                await session.aclose()
        finally:
            await self._boto3.aclose()

    async def _follow(
        self,
        client: _LeanClient,
        operation: str,
        request: Request,
        held: HeldConnection,
        sent: Elsewhere,
    ) -> Reply:
        """Let boto3 ask at the right place, and add our tries to what it tells of its own."""
        from botocore.exceptions import ClientError

        assert client.service is not None, "somebody was sent elsewhere"
        leave = client.service.protocol.leave_to_the_sdk
        try:
            reply = await self._boto3.perform(client.sdk, operation, request, held)
        except ClientError as error:
            error.response["ResponseMetadata"]["RetryAttempts"] += sent.try_count
            # A HEAD is told of an expired token in the same way as of another region.
            if error.response.get("Error", {}).get("Code") != sent.code:
                leave(request)
            raise
        leave(request)
        reply["ResponseMetadata"]["RetryAttempts"] += sent.try_count
        return reply

    async def _serve(self, service: str, sdk_client: Client) -> LeanService | None:
        assert self._build is not None, "a transport is opened before it connects"
        blueprint = await in_thread(self._build, service, sdk_client, self._settings)
        if blueprint is None:
            return None
        session = blueprint.session()
        self._sessions.append(session)
        return blueprint.service(session, self._clock)


def _load() -> Build:
    """Import what the calls need, so that none of it is read on the event loop."""
    check_versions(TransportKind.LEAN)
    try:
        import aiohttp  # noqa: F401
        import boto3  # noqa: F401
    except ImportError as error:
        raise PACKAGES.missing(error.name or "aiohttp") from error
    from .building import blueprint_of
    from .http_session import check_aiohttp

    check_aiohttp()
    return blueprint_of
