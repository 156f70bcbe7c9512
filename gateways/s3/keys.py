"""Keys: where everything of a queue is. The names of queues are made safe for a key."""

from __future__ import annotations

from urllib.parse import quote, unquote

import attrs


@attrs.frozen
class QueueKeys:
    """The keys of one queue below a gateway's prefix."""

    prefix: str
    """The gateway's, empty or ending in a slash."""
    queue: str

    @property
    def root(self) -> str:
        """What all keys of the queue begin with."""
        return f"{self.prefix}queues/{quote(self.queue, safe='')}/"

    @property
    def facts(self) -> str:
        """The object that says what the queue is like."""
        return f"{self.root}queue.json"

    # The layout of leases.

    @property
    def tail(self) -> str:
        """The object that numbers are taken from."""
        return f"{self.root}tail.json"

    @property
    def messages(self) -> str:
        """The prefix of batches of messages."""
        return f"{self.root}messages/"

    @property
    def pending(self) -> str:
        """The prefix of leases."""
        return f"{self.root}pending/"

    def lease(self, message: str) -> str:
        """The lease of a message, by its id in the store."""
        return f"{self.pending}{message}/lease.json"

    # The layout of group commit.

    @property
    def head(self) -> str:
        """The register every commit goes through."""
        return f"{self.root}log/head"

    @property
    def segments(self) -> str:
        """The prefix of bodies."""
        return f"{self.root}segments/"

    @property
    def history(self) -> str:
        """The prefix of snapshots and of entries that the head no longer holds."""
        return f"{self.root}log/history/"


def queue_of(key: str, prefix: str) -> str | None:
    """The queue whose `facts` a key is; None for any other key."""
    name, slash, rest = key.removeprefix(f"{prefix}queues/").partition("/")
    return unquote(name) if slash and rest == "queue.json" else None
