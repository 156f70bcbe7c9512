"""Where to listen: the addresses behind a host, and whether they are this machine's own."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Final

from pump.errors import ConfigurationError

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
