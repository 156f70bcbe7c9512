"""The SDKs: boto3 and aioboto3, told the same; lean beside them; and which of them is used."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from io import BytesIO
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from pump.clock import SYSTEM_CLOCK, Clock
from pump.crypto.aiobotocore_client import CredentialProvider, check_hosts
from pump.errors import ConfigurationError
from pump.secret import revealed
from pump.tasks import in_thread
from pump.versions import Packages, installed

from .sdk_transport import Client, HeldConnection, Reply, Request, Sdk, SdkTransport, Transport
from .settings import AwsSettings, TransportKind

if TYPE_CHECKING:
    from .lean.http_session import Elsewhere, HttpSession
    from .lean.service import Blueprint, LeanService

    Build = Callable[[str, Client, AwsSettings], Blueprint | None]


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
# At DEBUG the SDKs log whole requests: bodies, signatures and session tokens.
_TALKATIVE = ("boto3", "botocore", "aioboto3", "aiobotocore", "urllib3", "s3transfer")


def make_session(settings: AwsSettings) -> Any:
    """A boto3 session with a region, the SDKs' versions checked. Blocks: call it in a thread."""
    check_versions(settings.transport)
    try:
        import boto3
        from botocore.exceptions import NoRegionError
    except ImportError as error:
        raise PACKAGES.missing("boto3") from error
    _hush()
    given = settings.credentials
    session = boto3.Session(
        profile_name=settings.profile,
        region_name=settings.region,
        aws_access_key_id=given.access_key_id.reveal() if given else None,
        aws_secret_access_key=given.secret_access_key.reveal() if given else None,
        aws_session_token=revealed(given.session_token) if given else None,
    )
    if not session.region_name:
        raise NoRegionError
    return session


def make_client(session: Any, service: str, settings: AwsSettings) -> Any:
    """A boto3 client whose credentials are found. Blocks: call it in a thread."""
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    # A client without credentials can be made and fails at each call: better to say so once.
    if session.get_credentials() is None:
        raise NoCredentialsError
    config = Config(**config_options(settings))
    client = session.client(service, endpoint_url=settings.endpoint_url, config=config)
    watch_replies(client)
    return client


def config_options(settings: AwsSettings) -> dict[str, Any]:
    """The arguments of botocore's `Config` (and aiobotocore's, which extends it)."""
    package = settings.transport.value
    options: dict[str, Any] = {
        "retries": {"mode": "standard", "total_max_attempts": settings.max_attempts},
        "max_pool_connections": settings.max_connections,
        "connect_timeout": settings.connect_timeout_s,
        "read_timeout": settings.read_timeout_s,
        "tcp_keepalive": True,
        # The next two save a quarter to a half of an SDK's CPU time, measured on a batch of ten
        # (800–960 µs a call before, 490–610 µs after). Requests are built by our own code and
        # checked by AWS; and a user agent that is not given is put together twice a call.
        "parameter_validation": False,
        "user_agent": f"{package}/{installed(package)}",
        "user_agent_extra": "pumphouse",
    }
    if settings.endpoint_url:
        # Names of buckets are no names of hosts at LocalStack and its like.
        options["s3"] = {"addressing_style": "path"}
    return options


def watch_replies(client: Any) -> None:
    """Let a reply that is no JSON fail the call, where the SDK would read it as an empty one,
    and read the others here: the SDK walks through its model of them for every value.
    """
    if client.meta.service_model.service_name == "sqs":
        client.meta.events.register("before-parse.sqs", _read_reply)


def _read_reply(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    body = response_dict["body"]
    if response_dict["status_code"] >= 300 or not body:
        return
    try:
        reply = _decode_object(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        from botocore.parsers import ResponseParserError

        raise ResponseParserError("the reply is not JSON; is a proxy in the way?") from None
    if b'"BinaryValue"' in body:
        return  # Bytes are told from text by the model alone.
    customized_response_dict.update(
        {name: value for name, value in reply.items() if value is not None}
    )
    response_dict["body"] = b"{}"


def _hush() -> None:
    """Keep an application's DEBUG level from the SDKs, unless it was set on them by name.

    Nor need they say at INFO, beside our own lines, where they found their credentials.
    """
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


# The SDKs this works with, checked before anything is sent (R77).

PACKAGES = Packages(
    extra="sqs", versions={"boto3": ">=1.36", "aioboto3": ">=14", "aiohttp": ">=3.14"}
)
"""With these SQS speaks JSON, the SDKs know the standard retry mode and `IfMatch` of PutObject, and
aiohttp can be kept from repeating a write by itself."""
NEEDED = {
    TransportKind.BOTO3: ("boto3",),
    TransportKind.AIOBOTO3: ("boto3", "aioboto3"),
    TransportKind.LEAN: ("boto3", "aiohttp"),
}
"""What each transport stands on."""


def check_versions(kind: TransportKind) -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old."""
    PACKAGES.check_installed(NEEDED[kind])


# boto3: blocking calls, each in a thread of its own while it lasts.


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

    async def perform(
        self, client: Client, operation: str, request: Request, held: HeldConnection
    ) -> Reply:
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


# aioboto3: calls on the event loop, and everything that reads files off it.

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

    async def perform(
        self, client: Client, operation: str, request: Request, held: HeldConnection
    ) -> Reply:
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
        raise PACKAGES.missing("aioboto3") from error
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

    It would not be known to be sent twice, and S3 refuses a conditional write because of its
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


# Threads for blocking calls, started as they are needed and never waited for at exit.
#
# `ThreadPoolExecutor` joins its threads when the process ends: a call without a waiter, to a
# server that does not answer, would keep a process alive for minutes.

_Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DaemonThreads:
    """At most so many threads, which are reused, for the calls of one event loop."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._numbers = count(1)
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._work: SimpleQueue[_Work | None] = SimpleQueue()

    def submit(self, function: Callable[..., Any], *args: object) -> Future[Any]:
        """Have a thread call the function; when all are busy, the next that is not."""
        future: Future[Any] = Future()
        self._work.put((future, function, args))
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            self._started += 1
            name = f"{self._name}-{next(self._numbers)}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        return future

    def shutdown(self) -> None:
        """Let each thread end after what it does now; do not wait for it."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            _perform_jobs(*work)
            # An idle thread must not keep the last result alive.
            del work
            self._idle.release()


def _perform_jobs(future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args)
    except Exception as error:  # broad: it belongs to the future's waiter
        future.set_exception(error)
    else:
        future.set_result(result)


# The lean transport: an `Sdk` that performs what costs by itself, and leaves the rest to boto3.


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

        assert client.service is not None, "a call of the SDK's own was sent elsewhere"
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
    from .lean.http_session import check_aiohttp
    from .lean.service import blueprint_of

    check_aiohttp()
    return blueprint_of


# Which transport the settings choose; the only module that knows all of them.

_KINDS: Final[Mapping[TransportKind, Callable[[AwsSettings], Sdk]]] = {
    TransportKind.BOTO3: Boto3,
    TransportKind.AIOBOTO3: Aioboto3,
    TransportKind.LEAN: Lean,
}


def transport_for(settings: AwsSettings, clock: Clock = SYSTEM_CLOCK) -> Transport:
    """Make the transport that the settings choose. No SDK is imported, and nothing opened yet."""
    return SdkTransport(_KINDS[settings.transport](settings), settings, clock)
