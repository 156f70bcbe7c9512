"""Plan: what a redrive is asked to do. The same plan again goes on with an unfinished run."""

from __future__ import annotations

import hashlib
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from ..errors import ConfigurationError
from ..gateway_url import without_secrets

_SAYS_WHERE = ("endpoint", "owner", "profile", "vhost")
"""Of a gateway URL's query: what tells one broker from another."""


@attrs.frozen(kw_only=True)
class Plan:
    """Which dead letters go where."""

    gateway: str
    """The broker, without secrets: `place_of` makes it of a URL."""
    queue: str
    target: str
    where: str
    """A predicate in SQL over the columns of `columns.VISIBLE`."""
    limit: int | None = None
    """The most to send, the longest rejected first; None for all."""

    def __attrs_post_init__(self) -> None:
        if not self.queue.strip():
            raise ConfigurationError("QUEUE", self.queue, "name the dead-letter queue")
        if not self.target.strip():
            raise ConfigurationError("--to", self.target, "name the queue to send to")
        if self.queue == self.target:
            raise ConfigurationError(
                "--to", self.target, "this is the dead-letter queue itself; name another queue"
            )
        if not self.where.strip():
            raise ConfigurationError("--where", self.where, "say which, or TRUE for all")
        if not all(map(_is_text, (self.queue, self.target, self.where))):
            said = ascii((self.queue, self.target, self.where))
            raise ConfigurationError("redrive", said, "write queues and condition in UTF-8")
        if self.limit is not None and self.limit < 1:
            raise ConfigurationError("--limit", self.limit, "use 1 or more")

    @property
    def source_id(self) -> str:
        """Eight characters that tell this dead-letter queue from all others."""
        return hashlib.sha256(f"{self.gateway}\0{self.queue}".encode()).hexdigest()[:8]


def _is_text(given: str) -> bool:
    """Whether it can be written: bytes of the command line that are no UTF-8 cannot."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def place_of(url: str) -> str:
    """Where a gateway is, without secrets and without what only tunes it."""
    try:
        query = parse_qsl(urlsplit(url).query)
    except ValueError:
        return without_secrets(url)
    kept = urlencode(sorted((name, value) for name, value in query if name in _SAYS_WHERE))
    return f"{without_secrets(url)}?{kept}" if kept else without_secrets(url)
