"""Layout: the two ways to keep a queue in objects, behind one interface; and what each can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol
from urllib.parse import quote, unquote

import attrs

from pump.capabilities import Capabilities, OrderingMode
from pump.clock import Clock
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.ports import QueueStats

from .store.objects import ObjectStore, ServerTime


class Layout(StrEnum):
    """How a queue is kept."""

    LEASES = "leases"
    """A lease object a message: claims do not meet, each message costs about two writes."""
    LOG = "log"
    """Group commit: what a process does is committed together, a small fraction of a request a
    message; groups, de-duplication and exact depths besides."""


@attrs.frozen(kw_only=True)
class QueueDescription:
    """What a queue is like; kept in `queue.json`."""

    name: str
    layout: Layout = Layout.LEASES
    is_lifo: bool = False
    is_strict: bool = False
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    deduplication_window_s: float = 300.0
    """Of the log layout; leases know no duplicates."""


@attrs.frozen(kw_only=True)
class S3QueueSettings:
    """How a process looks after its queues; each process may have its own."""

    poll_s: float = 1.0
    """The longest pause between two looks for messages of other processes."""
    look_again_s: float = 2.0
    """How long another's lease stands unchanged before its content is read."""
    cache_bytes: int = 64 * 1024 * 1024
    """How much of what was read is kept, a queue."""
    linger_s: float = 60.0
    """Of leases: how long the ends of a batch's messages stay after it was written. A copy of that
    write may still be on its way, if an answer was slow and the request was repeated: it must find
    them there, or it would bring its messages back. Well above `S3Settings.patience_s`."""


SendTo = Callable[[str, Message], Awaitable[None]]
"""Sends a message to another queue of the gateway: how the last delivery is moved."""


@attrs.frozen(kw_only=True)
class Surroundings:
    """What a queue is given to work with."""

    keys: QueueKeys
    store: ObjectStore
    time: ServerTime
    clock: Clock
    send_to: SendTo
    new_id: Callable[[], str]
    """Makes tokens and nonces that are unique for ever."""


class StoredQueue(Protocol):
    """One queue in one process, shared by all its consumers and producers there.

    Methods are those of the ports, with the same laws (`pump.ports`).
    """

    async def send(self, messages: Sequence[Message], *, delay_s: float) -> list[str]:
        """As `ProducerPort.send`."""

    async def receive(self, *, max_count: int, wait_s: float, lease_s: float) -> list[Delivery]:
        """As `ConsumerPort.receive`."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Refusal]:
        """As `ConsumerPort.settle`."""

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> list[Refusal]:
        """As `ConsumerPort.extend`."""

    async def stats(self) -> QueueStats:
        """As `AdminPort.stats`."""

    async def peek(self, *, max_count: int) -> list[Message]:
        """As `AdminPort.peek`."""

    async def purge(self) -> int:
        """As `AdminPort.purge`."""

    async def adopt(self, facts: QueueDescription) -> None:
        """Go by these facts from now on; the layout is never another one."""

    async def aclose(self) -> None:
        """End everything that runs in the background; waiting receives return empty. Cancelled, it
        ends what is under way instead of waiting for it.
        """


# Keys: where everything of a queue is. The names of queues are made safe for a key.


@attrs.frozen
class QueueKeys:
    """The keys of one queue below a gateway's prefix."""

    prefix: str
    """The gateway's, empty or ending in a slash."""
    queue: str

    @property
    def root(self) -> str:
        """What all keys of the queue begin with."""
        # Half a surrogate pair is in no queue's name, and is looked for all the same.
        name = quote(self.queue, safe="", errors="surrogatepass")
        return f"{self.prefix}queues/{name}/"

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


# Limits of queues in objects, and what follows for the pump.

MAX_BODY_BYTES: Final = 1_048_576
"""Ours, not S3's: larger bodies belong into objects of their own, and messages name them."""

LEASES: Final = Capabilities(
    gateway="s3",
    ordering_modes=frozenset({OrderingMode.FIFO, OrderingMode.LIFO}),
    has_strict_order=True,
    has_native_redrive=True,
    has_uncounted_abandon=True,
    has_peek=True,
    has_purge=True,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_body_bytes=MAX_BODY_BYTES,
    receive_batch=50,
    # A request a message, all under way at once: a larger call would only end later.
    settle_batch=25,
    max_settle_calls=8,
    max_pollers=4,
)
"""Of queues with a lease a message."""

LOG: Final = attrs.evolve(
    LEASES,
    has_groups=True,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=True,
    has_exact_stats=True,
    # What comes while a commit is under way goes into the next one, of whatever call.
    receive_batch=1000,
    settle_batch=1000,
)
"""Of queues with group commit."""


def capabilities_of(layout: Layout) -> Capabilities:
    """What queues of a layout can do; a gateway says those of the layout it makes queues with."""
    return LOG if layout is Layout.LOG else LEASES
