"""HTTP over aiohttp: connections that are kept, and failures under botocore's names for them.

Its names decide what is tried again (`retrying`) and what an error says (`gateways/_aws/errors`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from functools import partial
from io import BytesIO
from typing import Any

import aiohttp
import attrs
from botocore import exceptions
from yarl import URL

from pump.errors import ConfigurationError

from .signing import Signable, Signer

_LARGE_BODY = 1 << 20
"""What aiohttp still takes as one piece; more of it at once would hold up the loop."""
_KEPT_S = 12.0
"""How long an idle connection is kept: as long as aiobotocore keeps one."""
_MOST_MS = 2**31 - 1
"""What a socket's option holds."""
_SKIPPED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


@attrs.frozen(kw_only=True)
class Link:
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

    def __init__(self, link: Link) -> None:
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
        # By itself aiohttp sends a PUT again when its connection breaks, and nobody would know:
        # S3 would refuse a conditional write because of its own first half.
        self._session._retry_connection = False

    async def send(self, planned: Planned, headers: Mapping[str, str]) -> Answer:
        """Send it once. Raises botocore's errors, and aiohttp's for a stream that broke off."""
        try:
            return await self._send(planned, headers)
        except aiohttp.ClientPayloadError as error:
            if planned.is_streamed:
                raise
            raise named(error, planned.url) from error
        except (aiohttp.ClientError, OSError) as error:
            raise named(error, planned.url) from error

    async def _send(self, planned: Planned, headers: Mapping[str, str]) -> Answer:
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
            return Answer(
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
class Answer:
    """A whole reply; botocore's retry policy reads its `status_code`."""

    status_code: int
    headers: dict[str, str] = attrs.field(repr=False)
    """Names in lower case."""
    body: bytes = attrs.field(repr=False)
