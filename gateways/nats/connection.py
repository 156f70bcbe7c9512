"""The connection of one gateway: a link at a time, made when one is needed.

The SDK's own reconnecting is off: it would keep acks in a buffer while the server is away and
send them when their leases are long over. Here a lost connection fails whatever was under way,
and the next operation makes a new one, no sooner than the backoff allows. Leases live at the
server, so receipts stay good across it.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any

import msgspec

from pump.backoff import UNREACHABLE
from pump.clock import Clock
from pump.errors import ConfigurationError, GatewayError, PumpError
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.secret import revealed
from pump.tasks import in_thread
from pump.versions import Packages, server_version

from .._kit.connection import Reconnecting
from .errors import api_fault, connect_fault, no_jetstream
from .link import Answer, Link, NoResponders, ServerRequest, close
from .names import DEFAULT_MAX_PAYLOAD, MINIMUM_SERVER
from .settings import NatsSettings

PING_INTERVAL_S = 10
"""A server that does not answer three of these is gone."""
_BUFFER_BYTES = 64 * 1_048_576
"""More than is ever published ahead: a publish that had to wait for the socket inside the SDK
would swallow a cancellation."""

_log = get_logger("gateways.nats")


class NatsConnection:
    """Connects when needed, and again after every loss."""

    def __init__(self, settings: NatsSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._links = Reconnecting(
            self._connect,
            is_alive=lambda link: link.is_alive,
            end=self._end,
            backoff=UNREACHABLE,
            clock=clock,
            target=settings.target,
            made=self._tell_of_loss,
        )
        self._lost: Link | None = None
        """The last one, until there is another; attempts in between may fail."""
        self._discovered: tuple[str, ...] = ()
        self.max_payload = DEFAULT_MAX_PAYLOAD
        """What the server said when it was last connected to."""
        self.server_version: tuple[int, ...] = ()
        self.has_jetstream = False
        self.on_other_server: Callable[[float], None] | None = None
        """Told when a server was restarted, or another one took over: until when the one before
        was known to be there.
        """

    @property
    def settings(self) -> NatsSettings:
        """How it was set up."""
        return self._settings

    async def open(self) -> None:
        """Connect, or find out why not. After `aclose` it opens again."""
        self._links.reopen()
        await self.link()

    def link(self) -> Awaitable[Link]:
        """The link there is, or a new one. Raises `ConnectionFailed` or `AccessDenied`."""
        return self._links.get()

    async def request(self, request: ServerRequest) -> Answer:
        """What came of one request."""
        [answer] = await self.request_all([request])
        return answer

    async def request_all(self, requests: Sequence[ServerRequest]) -> list[Answer]:
        """What came of each, in order; raises only when there is no connection to be had."""
        link = await self.link()
        return await link.request_all(requests, timeout_s=self._settings.request_timeout_s)

    def later(self, work: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
        """Have something done over the link there is; without one it is not done."""
        if (link := self._links.current) is not None:
            link.later(work(link))

    async def aclose(self) -> None:
        """Idempotent."""
        link = await self._links.aclose()
        if link is not None:
            await link.aclose()

    async def _end(self, lost: Link) -> None:
        self._lost = lost
        await lost.end()

    async def _connect(self) -> Link:
        settings = self._settings
        link = Link(settings.target, self._clock)
        # Imports and certificates are read from files.
        client, options = await in_thread(_prepared, settings)
        hosts = dict.fromkeys((*settings.hosts, *self._discovered))
        is_made = False
        try:
            async with self._clock.timeout(settings.connect_timeout_s * len(hosts)):
                await client.connect(
                    servers=[f"nats://{host}" for host in hosts],
                    error_cb=link.noticed,
                    closed_cb=link.closed,
                    **options,
                )
                await link.begin(client)
            self._welcome(link, client)
        except PumpError:
            raise
        except Exception as error:  # broad: the SDK fails in many ways, all of them mean no link
            raise self._fault(link.last_error or error) from error
        else:
            is_made = True
        finally:
            if not is_made:
                await link.end()
                await close(client, self._clock)
        return link

    def _tell_of_loss(self, new: Link) -> None:
        old, self._lost = self._lost, None
        if old is None:
            return
        _log.info(vocabulary.GATEWAY_RECOVERED, gateway=self._settings.target)
        if new.server_id != old.server_id and self.on_other_server is not None:
            self.on_other_server(old.alive_until_s)

    def _welcome(self, link: Link, client: Any) -> None:
        version = str(client.connected_server_version).strip("<>").removeprefix("nats server v")
        check_server(version)
        self.server_version = server_version(version)
        self.max_payload = link.max_payload
        self.has_jetstream = link.has_jetstream
        # Servers name each other by address, and a certificate is for a name.
        others = () if client.server_info.get("tls_required") else client.discovered_servers
        self._discovered = tuple(server.netloc for server in others)

    def _fault(self, error: BaseException) -> PumpError:
        settings = self._settings
        given = (settings.password, settings.token)
        secrets = tuple(each.reveal() for each in given if each)
        return connect_fault(error, settings.target, secrets)


def _prepared(settings: NatsSettings) -> tuple[Any, dict[str, Any]]:
    PACKAGES.check_installed()
    return _new_client(needs_tls=settings.has_tls), _options(settings)


def _new_client(*, needs_tls: bool) -> Any:
    try:
        from .client import PumpClient, TlsClient
    except ImportError as error:
        raise PACKAGES.missing(PACKAGE) from error
    return TlsClient() if needs_tls else PumpClient()


def _options(settings: NatsSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "name": "pumphouse",
        "allow_reconnect": False,
        # With one, every server is tried twice before it gives up.
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": settings.connect_timeout_s,
        "ping_interval": PING_INTERVAL_S,
        "pending_size": _BUFFER_BYTES,
    }
    login = {
        "user": settings.user,
        "password": revealed(settings.password),
        "token": revealed(settings.token),
    }
    options |= {name: text for name, text in login.items() if text is not None}
    if settings.credentials_file is not None:
        options["user_credentials"] = _credentials(settings.credentials_file)
    if settings.has_tls:
        options["tls"] = _tls(settings)
    return options


def _credentials(path: str) -> str:
    try:
        with open(path, "rb"):
            pass
        import_module("nkeys")
    except OSError as error:
        raise _unreadable("credentials_file", path, error) from error
    except ImportError as error:
        remedy = "credentials files need the package nkeys; run pip install nkeys"
        raise ConfigurationError("NatsSettings.credentials_file", path, remedy) from error
    return path


def _tls(settings: NatsSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
    except OSError as error:
        raise _unreadable("tls_ca_file", settings.tls_ca_file, error) from error
    if settings.tls_cert_file is not None:
        try:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
        except OSError as error:
            raise _unreadable("tls_cert_file", settings.tls_cert_file, error) from error
    return context


def _unreadable(field: str, path: str | None, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"NatsSettings.{field}", path, f"cannot be read: {error}")


# The SDK and the servers this works with, checked before anything is sent (R77).

PACKAGE = "nats-py"
PACKAGES = Packages(extra="nats", versions={PACKAGE: ">=2.9"})


def check_server(found: str) -> None:
    """Raise `ConfigurationError` when the server is too old."""
    if server_version(found)[:2] < MINIMUM_SERVER:
        wanted = ".".join(map(str, MINIMUM_SERVER))
        raise ConfigurationError("nats-server", found, f"needs nats-server >= {wanted}")


# JetStream's API: one request, one answer in JSON, its errors in our words.

NANOSECONDS = 1_000_000_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ApiError(Exception):
    """An error in an answer; `fault` is what it means for the queue."""

    def __init__(self, code: int, error_code: int, text: str) -> None:
        super().__init__(code, error_code, text)
        self.code = code
        self.error_code = error_code
        self.text = text


class JetStream:
    """The API of one account, over the gateway's connection."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    @property
    def connection(self) -> NatsConnection:
        """What carries the requests."""
        return self._connection

    def subject(self, operation: str) -> str:
        """Where an operation is asked for."""
        return f"{self._connection.settings.api_prefix}.{operation}"

    def bucket(self, name: str, *, max_age_s: float) -> dict[str, Any]:
        """The stream behind a bucket, laid out as the server's own are: the last value of a key."""
        return {
            "name": f"KV_{name}",
            "subjects": [f"$KV.{name}.>"],
            "max_msgs_per_subject": 1,
            "max_age": nanoseconds(max_age_s),
            "storage": "file",
            "discard": "new",
            "allow_rollup_hdrs": True,
            "num_replicas": self._connection.settings.replicas,
        }

    async def ask(self, operation: str, body: object = None) -> dict[str, Any]:
        """The answer to an operation; raises `ApiError` for an error in it."""
        payload = b"" if body is None else _encode(body)
        connection = self._connection
        answer = await connection.request(
            ServerRequest(subject=self.subject(operation), payload=payload)
        )
        if isinstance(answer, NoResponders):
            raise no_jetstream(connection.settings.target, is_there=connection.has_jetstream)
        return read_answer(answer)

    async def call(self, operation: str, body: object = None, *, queue: str) -> dict[str, Any]:
        """The answer to an operation on a queue, its errors translated."""
        try:
            return await self.ask(operation, body)
        except ApiError as error:
            raise fault_of(error, queue) from error


def read_answer(answer: Answer) -> dict[str, Any]:
    """The JSON of an answer; raises `ApiError`, or what came instead of it."""
    if isinstance(answer, GatewayError | NoResponders):
        raise answer
    try:
        read = _decode(answer.data)
    except msgspec.DecodeError:
        raise ApiError(500, 0, "an answer that is no JSON") from None
    error = read.get("error")
    if isinstance(error, dict):
        raise ApiError(
            int(error.get("code", 0)),
            int(error.get("err_code", 0)),
            str(error.get("description", "")),
        )
    return read


def fault_of(error: ApiError, queue: str) -> PumpError:
    """What an API error means for a queue."""
    return api_fault(error.code, error.error_code, error.text, queue=queue)


def nanoseconds(seconds: float) -> int:
    """A duration as JetStream writes it."""
    return round(seconds * NANOSECONDS)
