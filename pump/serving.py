"""Serving: the port of what `pump local` runs. An entry point names it, so that `pump` imports
no server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

import attrs

from .errors import ConfigurationError
from .ports import QueueStats

ENTRY_POINT_GROUP = "pumphouse.servers"
DEFAULT_PORT = 9324
"""ElasticMQ's: what was configured for that finds us."""
_EXTRA = {"aiohttp", "yaml"}
"""What the extra `local` installs."""


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
    credentials: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Secret by access key id. When there are any, every request must be signed with one."""
    is_strict: bool = False
    """Whether to refuse what AWS refuses for a minute: to make a queue again that was just
    deleted, or to purge one twice."""


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
