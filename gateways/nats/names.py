"""Names: what a queue and its groups are called in NATS. Pure.

| of queue `orders`           | is                                                     |
|-----------------------------|--------------------------------------------------------|
| the stream                  | `orders`                                               |
| messages without a group    | subject `orders`: where strangers may publish          |
| messages of group `a`       | subject `orders.g.a`                                   |
| delayed ones, until due     | subject `orders.s.<unique>`                            |
| the consumer all share      | `pump`                                                 |
| the consumer of a session   | `session-<owner of its lock>`                          |

A name holds no dots, blanks, wildcards or slashes at NATS; those travel as `%XX`, like in a URL.
What is too long then is cut and carries its hash; the stream's metadata has the whole name.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

import attrs

CONSUMER: Final = "pump"
MAX_TOKEN: Final = 160
"""NATS takes 255 for a stream; a file system and the ack's subject want some of it too."""
_HASHED: Final = "%~"
"""Begins the hash of what was too long: no name is encoded so."""
_SAFE: Final = "=+@"


def token_of(name: str) -> str:
    """One token of a subject for any text that is not empty; different texts, different tokens."""
    octets = name.encode("utf-8", "surrogatepass")
    token = quote(octets, safe=_SAFE).replace(".", "%2E").replace("~", "%7E")
    if len(token) <= MAX_TOKEN:
        return token
    return f"{token[:64].rstrip('%')}{_HASHED}{sha256(octets).hexdigest()}"


def name_of(token: str) -> str | None:
    """The text that a token was made of; None where only its hash is left."""
    if _HASHED in token:
        return None
    return unquote(token, errors="surrogatepass")


@attrs.frozen
class QueueNames:
    """What one queue is called at NATS."""

    queue: str
    stream: str

    @classmethod
    def of(cls, queue: str) -> QueueNames:
        """The names of a queue."""
        return cls(queue, token_of(queue))

    @property
    def subjects(self) -> list[str]:
        """Everything that the stream keeps."""
        return [self.stream, self.groups, self.schedules]

    @property
    def groups(self) -> str:
        """The messages of all groups."""
        return f"{self.stream}.g.*"

    @property
    def schedules(self) -> str:
        """What waits for its time."""
        return f"{self.stream}.s.*"

    def subject(self, group: str | None) -> str:
        """Where a message is published."""
        return f"{self.stream}.g.{token_of(group)}" if group else self.stream

    def schedule(self, unique: str) -> str:
        """Where a delayed message waits: each needs a subject of its own."""
        return f"{self.stream}.s.{unique}"

    def group_token(self, subject: str) -> str | None:
        """The token of the group that a subject belongs to, None when it has none."""
        head = f"{self.stream}.g."
        return subject.removeprefix(head) if subject.startswith(head) else None
