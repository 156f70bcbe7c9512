"""Names: what a queue and its groups are called in NATS. Pure.

| of queue `orders`           | is                                                     |
|-----------------------------|--------------------------------------------------------|
| the stream                  | `orders`                                               |
| messages without a group    | subject `orders`: where other programs may publish     |
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

from pump.capabilities import Capabilities

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


# Limits of JetStream, and what follows for the pump.

MINIMUM_SERVER: Final = (2, 10)
"""Metadata on streams, several filters on a consumer, the server's time in its answers."""
SCHEDULING_SERVER: Final = (2, 12)
"""The first that keeps a message until its time (`Nats-Schedule`)."""
DEFAULT_MAX_PAYLOAD: Final = 1_048_576
"""A server's `max_payload` unless its configuration says otherwise."""
DEFAULT_LEASE_S: Final = 30.0
GRACE_S: Final = 0.25
"""How much longer the server waits than a lease lasts: it takes a late ack for a good one, so
what was settled in time has to arrive before another consumer is given the message."""
FORGETFUL_S: Final = 1.0
"""How long after a delivery a server that is killed may forget it; seen were some 50 ms."""
COARSE_S: Final = 1.5
"""How much sooner than it said a server that was restarted ends a lease or a deferral: it writes
their times down in whole seconds. Seen were 1.35 s."""
MAX_DEFERRALS: Final = 10_000
"""How many deferrals of a queue are remembered, to be told again to a server that restarted."""
MAX_WAITING: Final = 16_384
"""Receives that may wait on one queue at once, over all processes."""
MAX_IN_FLIGHT: Final = 512
MAX_IN_FLIGHT_BYTES: Final = 4 * 1_048_576
"""How much is published ahead of the server's confirmations."""

NATS = Capabilities(
    gateway="nats",
    has_strict_order=True,
    # Order within a group is kept by sessions only; a shared consumer knows nothing of groups.
    has_groups=False,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=True,
    # How often a message was handed back is kept beside its stream.
    has_uncounted_abandon=True,
    # By the delivery count of the server, moved by the consumer that meets it.
    has_native_redrive=True,
    has_peek=True,
    has_purge=True,
    # Their sum is exact. A lease that has run out counts as in flight until the next receive.
    has_exact_stats=False,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_body_bytes=DEFAULT_MAX_PAYLOAD,
    receive_batch=256,
    settle_batch=MAX_IN_FLIGHT,
    settle_linger_s=0.001,
    max_settle_calls=4,
    max_pollers=4,
    emulated=frozenset(
        {"has_sessions", "has_session_choice", "has_native_redrive", "has_uncounted_abandon"}
    ),
)
