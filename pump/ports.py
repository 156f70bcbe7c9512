"""Ports: what a gateway implements. Everything above this line is the same for all brokers.

A gateway's constructor performs no I/O; `open` does. Errors are `pump.errors`, translated at
the gateway's edge. No port method may swallow a cancellation, and none may block the event loop:
files, sockets and SDKs that block belong into threads.

Stored bytes that cannot be read, because another program or a newer version wrote them, are
delivered as they are: the bytes as the body, an empty `type`. The pump then routes the message;
to raise, to skip or to remove it is to lose it.

Times that are stored, or that another process reads, are those of the wall clock (`Clock.time_s`)
or the broker's own. `Clock.now_s` begins anew with the machine: it is for what this process alone
knows, such as `Delivery.lease_expires_at_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import attrs

from .capabilities import Capabilities
from .events import Event
from .findings import Finding, HandlerTimes
from .message import Delivery, Message
from .observability.telemetry import Counters
from .outcome import Defer, Refusal, Settlement
from .subscription import MakeChannels, QueueSpec, Subscription


class ConsumerPort(Protocol):
    """Receives from one queue and settles what it received."""

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Return up to `max_count` deliveries, as soon as there is one; an empty list after
        `wait_s` at the latest.

        At most `Capabilities.receive_batch`, however many are asked for. Each lease starts at
        receipt. Cancelling hides nothing: what was leased but not
        returned is made available again.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Apply each settlement at most once and return those the broker refused.

        A confirmed settlement is durable where the gateway is. Safe to call again with the
        refused ones, and with more than `Capabilities.settle_batch`. A deferral beyond
        `Capabilities.max_defer_s`, which the pump never asks for, is one of `max_defer_s`. A
        final refusal (`Refusal.is_final`) means the broker owns the message
        again. An error raised means that nothing is known of the whole batch.
        """

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """Make each lease end `lease_s` from now, and return those that were refused.

        At `Capabilities.max_lease_s` after the receipt a lease ends, whatever was asked for.
        """

    async def aclose(self) -> None:
        """Let go of the connection; leases that were not settled run out by themselves."""


@runtime_checkable
class LeaseLosingPort(Protocol):
    """A consumer port may be one too, where leases end with the connection they came through."""

    def when_lost(self, tell: Callable[[Sequence[Delivery]], None]) -> None:
        """From now on, tell of deliveries of this port whose leases have ended with their
        connection: as soon as that is known, from the event loop, each once. What is being settled
        is left out: its settle call answers for it. The last `tell` given is the one that counts.
        """


class ProducerPort(Protocol):
    """Sends to one queue."""

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """Send all and return their ids once each is as durable as the gateway makes it.

        Chunks by the provider's limits. A delay beyond `Capabilities.max_delay_s` is refused here,
        by `UnsupportedOperation` and before anything is sent. `QueueNotFound` when there is no
        queue; `SendFailed`, which names each failed message, when only some were refused.
        """

    async def aclose(self) -> None:
        """Let go of the connection."""


@attrs.frozen(kw_only=True)
class QueueStats:
    """What is in a queue now. Providers that only estimate say so in their documentation."""

    name: str
    visible: int
    in_flight: int
    delayed: int = 0
    oldest_age_s: float | None = None


class AdminPort(Protocol):
    """Looks after queues, for the command line and for opening a subscription."""

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """Create the queue, or check that it exists and fits, or do nothing.

        Raises `QueueNotFound` and `QueueMismatch` when validating, and `ConfigurationError`,
        naming it and making nothing, for an option (`QueueSpec.options`) that it does not know.
        """

    async def queues(self) -> Sequence[QueueStats]:
        """Every queue there is, by name."""

    async def stats(self, queue: str) -> QueueStats:
        """What is in one queue, without asking about all of them. `QueueNotFound` names it."""

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        """Look at the next messages without receiving them: no lease, no attempt.
        `UnsupportedOperation` without `Capabilities.has_peek`.
        """

    async def purge(self, queue: str) -> int:
        """Remove every message and return how many there were. `UnsupportedOperation` without
        `Capabilities.has_purge`.
        """


@runtime_checkable
class Gateway(Protocol):
    """One broker."""

    @property
    def capabilities(self) -> Capabilities:
        """What this broker can do."""

    async def open(self) -> None:
        """Connect. Idempotent; raises `ConnectionFailed` or `ConfigurationError`."""

    async def aclose(self) -> None:
        """Close everything that was made by this gateway. Idempotent."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """A consumer of the subscription's queue. Performs no I/O."""

    def producer(self, queue: str) -> ProducerPort:
        """A producer for a queue. Performs no I/O."""

    def admin(self) -> AdminPort:
        """The caretaker of this gateway's queues. Performs no I/O."""


@runtime_checkable
class Examiner(Protocol):
    """A gateway may be one too: `pump doctor` then leaves its queues to it, rather than compare
    their names with all there are.
    """

    async def examine(
        self, subscriptions: Sequence[Subscription], observed: Mapping[str, HandlerTimes]
    ) -> Sequence[Finding]:
        """What a person should know about these queues; changes nothing.

        `observed` is by subscription, and has those only that have been seen running. Without
        subscriptions it still proves that the broker answers. Raises `GatewayError` when it does
        not.
        """


class SessionPort(Protocol):
    """One session of a queue: the messages of one group, locked for the consumer that accepted it.

    They come in the order they were sent, and to no other consumer while the lock is held. When the
    lock is lost, `receive`, `settle` and `renew` raise `SessionLockLost`; `settle` may refuse
    with it instead. `settle` and `renew` are never called at once.
    """

    @property
    def id(self) -> str:
        """The `group` of its messages; empty for the messages without one."""

    @property
    def lock_expires_at_s(self) -> float | None:
        """When the lock runs out unless renewed, on the gateway's clock (`Clock.now_s`); None when
        it does not run out by itself, or nothing is left to lock.
        """

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """As `ConsumerPort.receive`, of this session. Returns nothing, without waiting, when no
        more can come before the session is accepted again.

        After a settlement other than an ack, that message comes again before its successors.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """As `ConsumerPort.settle`. A message that is deferred or abandoned comes together with
        those that were returned after it, abandoned; successors that are not yet returned stay
        behind it by the port's own doing.
        """

    async def renew(self) -> None:
        """Make the lock, and the lease of everything received and not settled, end a whole
        `Subscription.lease` from now, or as near to it as the provider allows.
        """

    async def aclose(self) -> None:
        """Hand back what was received and not settled, then release the lock. A lock that was
        lost is let go of in silence.
        """


@runtime_checkable
class SessionGateway(Protocol):
    """A gateway may be one too, and says so as `Capabilities.has_sessions`."""

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Lock a session of the subscription's queue for one lease: the one of this id, whether
        or not it has messages, or for None the next free one that has.

        Returns None when it was held by another, or none was free, for `wait_s`. Raises
        `UnsupportedOperation`, with the reason and what to do instead, where the queue has no
        sessions or they cannot be chosen (`Capabilities.has_session_choice`). Cancelling leaves
        nothing locked.
        """


@attrs.frozen(kw_only=True, eq=False)
class PushedRecord:
    """One message of an event, as the provider handed it over and before it is read.

    Compared by identity: an event may hold the same message twice.
    """

    id: str
    """What the provider knows it by in a function's answer."""
    source: str
    """The queue it came from, in the provider's own words."""
    raw: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    defect: str = ""
    """Why it cannot be read; such a record is reported as failed."""


class PushPort(Protocol):
    """Messages of one queue that the provider received itself and handed to this process.

    What the function answers settles them: a message that the answer does not name as failed is
    removed by the provider, a failed one comes again when its lease ends.
    """

    def read(self, record: PushedRecord, *, lease_s: float) -> Delivery:
        """The delivery that a record without a defect is, understood or not. Its lease ends in
        `lease_s`, at the latest: from then on the answer is not waited for.
        """

    async def fetch(self, delivery: Delivery) -> Delivery | Defer:
        """The delivery with its body, if that waits elsewhere; how long to put it off when the
        body cannot be had at the moment.
        """

    async def settle(
        self, settlements: Sequence[Settlement], *, is_answered: bool
    ) -> Sequence[Refusal]:
        """Tell the provider what the function's answer does not say, as `ConsumerPort.settle`:
        delays, and what is handed back at once. `is_answered` is False when the answer will be
        an error, which fails the whole event; then acks are told too.

        Returns when nothing is under way any more: a function may be frozen after its answer.
        """

    async def aclose(self) -> None:
        """Let go of the connection."""


@runtime_checkable
class PushGateway(Protocol):
    """A gateway may be one too: it reads the events with which its provider invokes a function."""

    def pushed_records(self, event: object) -> Sequence[PushedRecord]:
        """The records of an event, in order. `ConfigurationError` when it is not one of this
        provider's, or when a record has no id by which it could be reported as failed.
        """

    def is_pushed_to(self, record: PushedRecord, subscription: Subscription) -> bool:
        """Whether the record came from the subscription's queue."""

    def push_port(self, subscription: Subscription) -> PushPort:
        """What reads and settles the records of the subscription's queue. Performs no I/O."""


# Payload encryption: what the core knows of it. `pump.crypto` does it.
#
# A body that starts with `MAGIC` is encrypted. Messages stay so in flight, in queues and in the
# spill store; they are decrypted on the way to the handler, and nowhere else.

MAGIC: Final = b"QRE1"
PAST_MAGIC: Final = b"QRE2"
"""`PAST_MAGIC > body >= MAGIC` holds for what starts with `MAGIC`. Every message is asked, and
`startswith` takes three times as long."""


class PayloadEncryption(Protocol):
    """Encrypts what is sent and decrypts what arrives."""

    async def start(self, counters: Counters, emit: Callable[[Event], None] | None) -> None:
        """The app opens: have the keys at hand. Raises `ConfigurationError` when it cannot."""

    async def aclose(self) -> None:
        """The app has closed: let go of the keys."""

    async def encrypt(
        self, message: Message, queue: str, *, is_ready_made: bool = False
    ) -> Message:
        """The message as it travels. Raises `CryptoError`.

        A request that was encoded just now is always encrypted, whatever its body starts with. Only
        a message that came ready-made may be encrypted already, as it is sent on; then it stays
        as it is.
        """

    async def decrypt(self, delivery: Delivery) -> Message:
        """The message as it was sent. Raises `CryptoError` for one that is not acceptable;
        `KeyUnavailable` when its key cannot be had at the moment.
        """

    async def routing(self, delivery: Delivery) -> None:
        """A copy is about to be routed away: its reader there must be able to decrypt it, even
        before the original is settled. Never raises.
        """

    def settled(self, delivery: Delivery, *, is_handled: bool) -> None:
        """The broker confirmed that the message is gone: handled, or else routed away."""
