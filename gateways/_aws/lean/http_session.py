"""HTTP over aiohttp: connections that are kept, and failures under botocore's names for them.

Its names decide what is tried again (`retrying`) and what an error says (`gateways/_aws/errors`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import Any
from urllib.parse import SplitResult, urlsplit

import aiohttp
import attrs
import botocore
from botocore import exceptions
from botocore.httpsession import get_cert_path
from yarl import URL

from pump.errors import ConfigurationError

from ..sdk_transport import Client
from ..settings import AwsSettings
from .signing import Signable, Signer

_LARGE_BODY = 1 << 20
"""What aiohttp still takes as one piece; more of it at once would hold up the loop."""
_KEPT_S = 12.0
"""How long an idle connection is kept: as long as aiobotocore keeps one."""
_MOST_MS = 2**31 - 1
"""What a socket's option holds."""
_SKIPPED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


@attrs.frozen(kw_only=True)
class ServiceLink:
    """How one service is reached, as botocore's client for it would."""

    max_connections: int
    connect_timeout_s: float
    read_timeout_s: float
    user_agent: str
    tls: ssl.SSLContext | bool = attrs.field(repr=False)
    proxy_url: str | None = attrs.field(default=None, repr=False)
    proxy_headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


class HttpSession:
    """Sends requests. To be made on the event loop that uses it."""

    def __init__(self, link: ServiceLink) -> None:
        self._always = {"user-agent": link.user_agent, "accept-encoding": "identity"}
        self._proxy = link.proxy_url
        self._proxy_headers = link.proxy_headers or None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=link.max_connections,
                keepalive_timeout=_KEPT_S,
                ssl=link.tls,
                socket_factory=partial(_make_socket, link.read_timeout_s),
            ),
            timeout=aiohttp.ClientTimeout(
                total=None,
                # Also bounds a name server, and a proxy asked for a tunnel, that stay silent.
                connect=link.read_timeout_s,
                sock_connect=link.connect_timeout_s,
                sock_read=link.read_timeout_s,
            ),
            skip_auto_headers=_SKIPPED,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # By itself aiohttp sends a PUT again when its connection breaks, and says nothing:
        # S3 would refuse a conditional write because of its own first half.
        self._session._retry_connection = False

    async def send(self, planned: Planned, headers: Mapping[str, str]) -> HttpReply:
        """Send it once. Raises botocore's errors, and aiohttp's for a stream that broke off."""
        try:
            return await self._send(planned, headers)
        except aiohttp.ClientPayloadError as error:
            if planned.is_streamed:
                raise
            raise named(error, planned.url) from error
        except (aiohttp.ClientError, OSError) as error:
            raise named(error, planned.url) from error

    async def _send(self, planned: Planned, headers: Mapping[str, str]) -> HttpReply:
        body: bytes | BytesIO | None = planned.body or None
        if body is not None and len(planned.body) > _LARGE_BODY:
            body = BytesIO(planned.body)
        async with self._session.request(
            planned.signable.method,
            planned.url,
            data=body,
            headers={**self._always, **headers},
            allow_redirects=False,
            proxy=self._proxy,
            proxy_headers=self._proxy_headers,
        ) as response:
            return HttpReply(
                status_code=response.status,
                headers={
                    name.decode("latin-1").lower(): value.decode("utf-8", "surrogateescape")
                    for name, value in response.raw_headers
                },
                body=await response.read(),
            )

    async def aclose(self) -> None:
        await self._session.close()


def check_aiohttp() -> None:
    """Raise `ConfigurationError` where aiohttp cannot be kept from repeating writes by itself."""
    if "_retry_connection" not in getattr(aiohttp.ClientSession, "ATTRS", ()):
        remedy = "it may repeat writes unseen; use aiohttp 3.14, or transport='boto3'"
        raise ConfigurationError("aiohttp", aiohttp.__version__, remedy)


def _make_socket(patience_s: float, address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that breaks when what it sends is not taken for so long.

    aiohttp waits for a reply with a limit, and without one while it sends.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        patience_ms = min(int(patience_s * 1_000), _MOST_MS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
    return made


def named(error: Exception, url: URL) -> Exception:
    """A failure on the way to AWS, as botocore calls it."""
    kind = next(
        (ours for theirs, ours in _NAMES if isinstance(error, theirs)), exceptions.HTTPClientError
    )
    proxy_url = "of the environment"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        proxy_url += f", which replies {error.status}"
    told = {"endpoint_url": str(url.origin()), "proxy_url": proxy_url, "error": error}
    renamed: Exception = kind(**told)
    return renamed


_NAMES: tuple[tuple[type[Exception], Any], ...] = (
    (aiohttp.ClientSSLError, exceptions.SSLError),
    (aiohttp.ClientProxyConnectionError, exceptions.ProxyConnectionError),
    (aiohttp.ClientHttpProxyError, exceptions.ProxyConnectionError),
    (aiohttp.ConnectionTimeoutError, exceptions.ConnectTimeoutError),
    (TimeoutError, exceptions.ReadTimeoutError),
    (aiohttp.ServerDisconnectedError, exceptions.ConnectionClosedError),
    (aiohttp.ClientPayloadError, exceptions.ConnectionClosedError),
    (OSError, exceptions.EndpointConnectionError),
    (aiohttp.ClientConnectionError, exceptions.EndpointConnectionError),
)
"""The first that fits."""


# What goes out and what comes back, before anything of a service's protocol is in it.


@attrs.frozen(kw_only=True)
class Planned:
    """A call that is ready to be signed and sent, as often as it takes."""

    operation: str
    """AWS's own name of it: `ReceiveMessage`."""
    url: URL
    signable: Signable
    signer: Signer
    body: bytes = attrs.field(default=b"", repr=False)
    is_streamed: bool = False
    """Its reply is a body of any size: like an SDK's stream, it is not asked for twice."""


@attrs.frozen
class Elsewhere:
    """A call that was asked for at the wrong place, as it seems, after so many tries."""

    try_count: int
    code: str
    """What the refusal said."""


@attrs.frozen(kw_only=True)
class HttpReply:
    """A whole reply; botocore's retry policy reads its `status_code`."""

    status_code: int
    headers: dict[str, str] = attrs.field(repr=False)
    """Names in lower case."""
    body: bytes = attrs.field(repr=False)


# What a botocore client knows before it has sent anything: the only place that looks inside one.
#
# Endpoints, partitions, signing regions, TLS, proxies and credentials are its craft and not written
# again. It has no public way to ask for most of them: with a release that hides one, connecting
# fails with `ConfigurationError`, and so does `tests/gateways/aws/lean/test_sdk_facts.py`.

_SIGV4 = {"v4", "s3v4"}


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where the requests of an operation go, and what they are signed for."""

    base: SplitResult
    signer: Signer

    @property
    def is_tls(self) -> bool:
        return self.base.scheme == "https"


def endpoint_of(client: Client, operation: str, params: Mapping[str, Any]) -> Endpoint | None:
    """What botocore's rules say of such a request; None where they ask for more than SigV4."""
    model = client.meta.service_model.operation_model(operation)
    context: dict[str, Any] = {
        "client_region": client.meta.region_name,
        "client_config": client.meta.config,
        "has_streaming_input": model.has_streaming_input,
        "auth_type": model.resolved_auth_type,
        "unsigned_payload": model.unsigned_payload,
        "auth_options": client.meta.service_model.metadata.get("auth"),
    }
    with _looking_inside():
        url, headers, _ = client._resolve_endpoint_ruleset(model, dict(params), context)
        usual = client._request_signer
    configured = client.meta.config.signature_version
    signature = context.get("auth_type") or configured
    if headers or signature not in _SIGV4 or configured not in _SIGV4:
        return None
    signing = context.get("signing") or {}
    signer = Signer(
        region=signing.get("region") or usual.region_name,
        service=signing.get("signing_name") or usual.signing_name,
    )
    return Endpoint(base=urlsplit(url), signer=signer)


def credentials_of(client: Client) -> Any:
    """The credentials it signs with, or an object that renews them."""
    with _looking_inside():
        return client._request_signer._credentials


def link_of(client: Client, settings: AwsSettings, user_agent: str) -> ServiceLink:
    """How it reaches its service. Reads the certificates: call it in a thread."""
    with _looking_inside():
        http = client._endpoint.http_session
        verify, proxies = http._verify, http._proxy_config
    proxy_url = proxies.proxy_url_for(client.meta.endpoint_url)
    return ServiceLink(
        max_connections=settings.max_connections,
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        user_agent=user_agent,
        tls=_tls(verify),
        proxy_url=proxy_url,
        proxy_headers=proxies.proxy_headers_for(proxy_url) if proxy_url else {},
    )


def _tls(verify: bool | str | None) -> ssl.SSLContext | bool:
    if not verify:
        return False  # botocore was told so
    # The default context also checks that the certificate is for this host.
    return ssl.create_default_context(cafile=get_cert_path(verify))


@contextmanager
def _looking_inside() -> Iterator[None]:
    try:
        yield
    except AttributeError as error:
        remedy = (
            "the lean transport does not know this version; use transport='aioboto3' or 'boto3'"
        )
        raise ConfigurationError("botocore", botocore.__version__, remedy) from error
