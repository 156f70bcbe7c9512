"""Serving: the port of what `pump local` runs. An entry point names it, so that `pump` imports
no server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

import attrs

from .errors import ConfigurationError
from .ports import QueueStats
from .secret import Secret, secret

ENTRY_POINT_GROUP = "pumphouse.servers"
DEFAULT_PORT = 9324
"""ElasticMQ's: what was configured for that finds us."""
_EXTRA = {"aiohttp", "yaml"}
"""What the extra `local` installs."""


def _secrets(given: Mapping[str, str | Secret]) -> Mapping[str, Secret]:
    return {name: secret(value) for name, value in given.items()}


class KeptLeases(Enum):
    """After which end of a server its clients still have what they had in flight."""

    AFTER_CRASH = "crash"
    """A clean stop shows everything at once; a crash ends no lease of a client that may live."""
    ALWAYS = "always"
    """Also after a clean stop, as SQS, which is never seen to stop: for restarts under load."""
    NEVER = "never"
    """Every start shows everything, whatever was before: for development."""


@attrs.frozen(kw_only=True)
class ServerOptions:
    """Where to listen, where to keep queues, and which to make."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 for any that is free."""
    data: Path | None = None
    """The folder of the database; None keeps everything in memory only."""
    queues: tuple[str, ...] = ()
    """Names of queues to make, unless they exist."""
    config: Path | None = None
    """A file with queues and event-source mappings."""
    credentials: Mapping[str, Secret] = attrs.field(factory=dict, converter=_secrets, repr=False)
    """Secret by access key id. When there are any, every request must be signed with one."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names the server is reached by, such as `sqs.us-east-1.amazonaws.com` where a hosts
    file leads that here. Without credentials, requests to names that may be a web page's are
    refused."""
    is_strict: bool = False
    """Whether to refuse what AWS refuses for a minute: to make a queue again that was just
    deleted, or to purge one twice."""
    on_listening: Callable[[str], None] | None = attrs.field(default=None, repr=False)
    """Told the endpoint as soon as it is served, before any function runs."""
    keeps_leases: KeptLeases = KeptLeases.AFTER_CRASH
    """What is still in flight after a restart; in memory only, nothing ever is."""


@attrs.frozen(kw_only=True)
class MappingStats:
    """What an event-source mapping has done since the server started; counts of messages, but
    for `invocations`.
    """

    queue: str
    function: str
    invocations: int
    succeeded: int
    failed: int
    filtered: int


class QueueServer(Protocol):
    """A server of queues, in this process."""

    @property
    def endpoint(self) -> str:
        """Its URL, once it is open."""

    async def open(self) -> None:
        """Recover what is stored, make the queues asked for, listen, start the mappings."""

    async def aclose(self) -> None:
        """Let requests and functions that run come to their end, then let go of the files."""

    def queues(self) -> Sequence[QueueStats]:
        """What is in each queue."""

    def mappings(self) -> Sequence[MappingStats]:
        """What each event-source mapping has done."""


def make_server(options: ServerOptions, *, kind: str = "sqs") -> QueueServer:
    """Build, without opening it, the server of that kind; `ConfigurationError` when it lacks
    something.
    """
    for point in entry_points(group=ENTRY_POINT_GROUP, name=kind):
        try:
            factory = point.load()
        except ModuleNotFoundError as error:
            if error.name not in _EXTRA:
                raise
            raise ConfigurationError(
                "pump local", kind, f"{error}; try: pip install 'pumphouse[local]'"
            ) from error
        server: QueueServer = factory(options)
        return server
    raise ConfigurationError("pump local", kind, "no such server is installed")
