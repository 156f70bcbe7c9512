"""The HTTP server: aiohttp without a router, since every request goes to the same place."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Final, NamedTuple

from aiohttp import web

from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import ConfigurationError

from .connection import Connection, FastLane, HttpLimits, OrdinaryReader, Watch
from .exchange import Access, Exchange, Handler

# To read on and throw away after a refusal, or the client might not get to see it.
_LINGER_S = 1.0
# For answers that are made to be written when the server closes.
_WRITE_S = 1.0
# For requests that had their grace; aiohttp takes zero for no limit.
_CUT_OFF_S = 0.01
# aiohttp does not see that requests of the fast lane keep a connection alive, so its own limit is
# out of the way: ten years. `Watch` knows both lanes.
_KEEPALIVE_S = 10 * 365 * 24 * 3600.0


class Bound(NamedTuple):
    """Where the server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """As a client's endpoint URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class HttpServer:
    """Serves SQS over HTTP: gives each request to `handler` as a `Call`.

    With `credentials`, secrets by access key id, every request has to be signed with one of them.
    Without, the server listens on loopback only, and takes no requests that a web page of
    another site could have made; `allowed_hosts` are further names it may be reached by.

    A client that disconnects cancels the `handler` that works for it.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        credentials: Mapping[str, str] | None = None,
        allowed_hosts: Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
        limits: HttpLimits | None = None,
    ) -> None:
        self._handler = handler
        self._credentials = dict(credentials or {})
        self._allowed_hosts = frozenset(name.lower() for name in allowed_hosts)
        self._clock = clock
        self._limits = limits or HttpLimits()
        self._watch = Watch(clock, self._limits)
        self._exchange: Exchange | None = None
        self._web: web.Server | None = None
        self._listeners: list[asyncio.Server] = []

    async def start(self, host: str, port: int) -> Bound:
        """Listen on every address of `host`; 0 takes any port that is free.

        Raises:
            ConfigurationError: not a loopback host and no credentials, or not to be bound.
        """
        if self._exchange is not None:
            raise ConfigurationError("host", host, "the server has been started already")
        addresses = await resolve(host, port, is_verified=bool(self._credentials))
        self._exchange = Exchange(
            self._handler,
            Access(secrets=self._credentials, allowed_hosts=self._allowed_hosts | {host.lower()}),
            clock=self._clock,
            limits=self._limits,
            version=await asyncio.to_thread(_version),
        )
        self._web = web.Server(self._exchange.respond, handler_cancellation=True)
        fast_lane = FastLane(OrdinaryReader(self._limits), self._exchange.reply)
        self._listeners = await bind(self._factory(self._web, fast_lane), addresses, port)
        self._watch.start()
        return Bound(host or addresses[0], port_of(self._listeners))

    def _factory(self, manager: web.Server, fast_lane: FastLane) -> partial[Connection]:
        options: dict[str, Any] = {
            "loop": asyncio.get_running_loop(),
            "access_log": None,
            # A body is signed, and limited in size, as it came.
            "auto_decompress": False,
            "keepalive_timeout": _KEEPALIVE_S,
            "lingering_time": _LINGER_S,
            "max_line_size": self._limits.max_line_bytes,
            "max_field_size": self._limits.max_header_bytes,
        }
        return partial(Connection, manager, self._watch, fast_lane, **options)

    async def aclose(self) -> None:
        """Stop accepting, answer what is under way within the grace, and cut off the rest.

        Long polls are answered at once, with nothing; a client that sends a request meanwhile is
        told that the server is closing. Idempotent.
        """
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        self._watch.stop()
        is_at_rest = self._exchange is None or await self._exchange.drain()
        if self._web is not None:
            self._web.pre_shutdown()
            await self._web.shutdown(_WRITE_S if is_at_rest else _CUT_OFF_S)
        for listener in listeners:
            await listener.wait_closed()


def _version() -> str:
    try:
        return metadata.version("pumphouse")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "unknown"


# Where to listen: the addresses behind a host, and whether they are this machine's own.

# `localhost` stands for an IPv6 address on machines that have none to listen on.
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_CREDENTIALS: Final = (
    "others could reach this address, and without credentials every request is obeyed; listen on "
    "127.0.0.1, or give access keys and secrets that requests must be signed with"
)


async def resolve(host: str, port: int, *, is_verified: bool) -> list[str]:
    """The addresses to listen on.

    Raises:
        ConfigurationError: the host does not resolve, or is not loopback without `is_verified`.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        remedy = f"cannot be resolved to an address: {error}"
        raise ConfigurationError("host", host, remedy) from error
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    if not is_verified and not all(is_loopback(address) for address in addresses):
        raise ConfigurationError("host", host, _CREDENTIALS)
    return addresses


def is_loopback(address: str) -> bool:
    """Whether only programs on this machine can reach it."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


# Of asyncio's hundred, clients that all start at once drop out, and try again after seconds.
_BACKLOG = 1024


async def bind(
    factory: Callable[[], asyncio.Protocol], addresses: Sequence[str], port: int
) -> list[asyncio.Server]:
    """Listen on every address that this machine has, all on the same port.

    Raises:
        ConfigurationError: the port is taken or not allowed, or there is no such address.
    """
    servers: list[asyncio.Server] = []
    for address in addresses:
        try:
            servers.append(await _listen(factory, address, port_of(servers) or port))
        except OSError as error:
            if error.errno in _ABSENT and len(addresses) > 1:
                continue
            if servers and port == 0:
                continue  # the free port of the first address is taken on this one
            for server in servers:
                server.close()
            remedy = f"cannot listen on {address}: {error.strerror}; choose another port"
            raise ConfigurationError("port", port, remedy) from error
    if not servers:
        raise ConfigurationError("host", list(addresses), "this machine has no such address")
    return servers


async def _listen(
    factory: Callable[[], asyncio.Protocol], address: str, port: int
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(factory, address, port, backlog=_BACKLOG)


def port_of(servers: Sequence[asyncio.Server]) -> int:
    """The port that was bound, 0 when none was yet."""
    return int(servers[0].sockets[0].getsockname()[1]) if servers else 0
