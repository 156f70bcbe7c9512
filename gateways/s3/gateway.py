"""The S3 gateway: queues in a bucket, without any broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Protocol, runtime_checkable

import attrs

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import (
    ConfigurationError,
    GatewayError,
    MessageTooLarge,
    UnsupportedOperation,
)
from pump.findings import Finding, HandlerTimes
from pump.message import Delivery, Message, new_id
from pump.outcome import Refusal, Settlement
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats, SessionPort
from pump.subscription import MakeChannels, QueueSpec, Subscription
from pump.tasks import in_thread
from pump.versions import Packages

from .._aws import sdk
from .._aws.errors import SettingRefused
from .._aws.sdk import transport_for
from .._aws.sdk_transport import Transport
from .._aws.settings import TransportKind
from .._kit.queues import stats_of_all
from .doctor import examine
from .layout import MAX_BODY_BYTES, capabilities_of
from .queue_options import Wanted
from .queues import QueueCache, QueueEnvironment
from .settings import S3Settings
from .store.objects import ObjectStore, ServerTime, drive
from .store.s3_store import Bucket, S3Store, probe, refused


@attrs.frozen(kw_only=True)
class Storage:
    """A store of the caller's, and the time that its replies feed: a model, or a counted one."""

    store: ObjectStore
    time: ServerTime


class S3Gateway:
    """The queues below one prefix of a bucket, through boto3, aioboto3 or `lean`."""

    def __init__(
        self,
        settings: S3Settings,
        clock: Clock = SYSTEM_CLOCK,
        *,
        transport: Transport | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._has_sdk = transport is None and storage is None
        if storage is None:
            transport = transport or transport_for(settings.aws, clock)
            storage = _storage(settings, transport, clock)
        self._transport = transport
        self._environment = QueueEnvironment(
            settings=settings, store=storage.store, time=storage.time, clock=clock
        )
        self._queues = QueueCache(self._environment)
        self._sessions = S3Sessions(self._queues, clock)
        self._opening = asyncio.Lock()
        self._is_open = False

    def __repr__(self) -> str:
        return f"S3Gateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        """Those of queues that are made here without asking for a layout."""
        return capabilities_of(self._settings.layout)

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests so far by what they are: put, get, list, remove."""
        counts: Mapping[str, int] = getattr(self._environment.store, "counts", Counter())
        return counts

    async def open(self) -> None:
        """Finds out whether the store honours conditions, unless `S3Settings.probe` is False;
        then the network is first used by the first operation.
        """
        async with self._opening:
            self._queues.reopen()
            if self._is_open:
                return
            if self._has_sdk:
                await in_thread(check_sdk, self._settings.aws.transport)
            if self._transport is not None:
                await self._transport.open()
            if self._settings.probe:
                await self._probe()
            self._is_open = True

    async def aclose(self) -> None:
        """Releases the sessions that are open, and ends what runs for the queues; leases that were
        not settled run out by themselves.
        """
        try:
            await self._sessions.aclose(self._settings.patience_s)
            await self._queues.aclose()
        finally:
            if self._transport is not None:
                await self._transport.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """`ConfigurationError` for queues that cannot be had."""
        for spec in subscription.queue_specs():
            Wanted.from_spec(spec)
        return S3Consumer(
            self._queues,
            subscription.queue,
            subscription.lease,
            receive_batch=self.capabilities.receive_batch,
        )

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Of queues in the layout `log`; others have none, and say so."""
        return await self._sessions.accept(subscription, session, wait_s=wait_s)

    def producer(self, queue: str) -> ProducerPort:
        return S3Producer(self._queues, queue)

    def admin(self) -> AdminPort:
        return S3Admin(self._queues)

    async def examine(
        self, subscriptions: Sequence[Subscription], observed: Mapping[str, HandlerTimes]
    ) -> Sequence[Finding]:
        return await examine(self._environment, self._queues, self._transport, subscriptions)

    async def _probe(self) -> None:
        settings = self._settings
        root = f"{settings.root}probe/{new_id()}/"
        try:
            trouble = await drive(probe(root, new_id), self._environment.store)
        except SettingRefused as fault:
            if fault.value in ("NoSuchBucket", "404"):
                raise _missing(settings.bucket) from fault
            if fault.value == "NotImplemented":
                raise refused(settings.bucket, fault.remedy) from fault
            raise
        if not trouble and not self._environment.time.is_known:
            trouble = "its replies have no Date, and leases go by its clock"
        if trouble:
            raise refused(settings.bucket, trouble)


def _storage(settings: S3Settings, transport: Transport, clock: Clock) -> Storage:
    time = ServerTime(clock.now_s)
    bucket = Bucket(name=settings.bucket, patience_s=settings.patience_s)
    return Storage(store=S3Store(transport, bucket, time=time, clock=clock), time=time)


def _missing(bucket: str) -> ConfigurationError:
    return ConfigurationError(
        "S3Settings.bucket",
        bucket,
        f"there is no such bucket; make it (aws s3 mb s3://{bucket}), or correct its name, the "
        f"region and the endpoint",
    )


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`s3://bucket/prefix?region=eu-west-1`; see `S3Settings.from_url`."""
    return S3Gateway(S3Settings.from_url(url), SYSTEM_CLOCK if clock is None else clock)


# Administration of queues in objects: makes, checks, lists and empties them.


class S3Admin:
    """Looks after the queues below a gateway's prefix."""

    def __init__(self, queues: QueueCache) -> None:
        self._queues = queues

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """A queue that exists takes on what is asked for, unless only its name is: all but the
        layout, for which `QueueMismatch` is raised.
        """
        await self._queues.ensure(spec, make)

    async def queues(self) -> Sequence[QueueStats]:
        """Every queue below the prefix, by name; each is listed, which costs a request or more."""
        return await stats_of_all(self._queues.names(), self.stats, gateway="pumphouse-s3")

    async def stats(self, queue: str) -> QueueStats:
        return await (await self._queues.of(queue)).stats()

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await (await self._queues.of(queue)).peek(max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await (await self._queues.of(queue)).purge()


# The consumer of one queue in objects.


class S3Consumer:
    """Receives from one queue; what one consumer of a gateway received, another may settle."""

    def __init__(
        self, queues: QueueCache, queue: str, lease: timedelta, *, receive_batch: int
    ) -> None:
        self._queues = queues
        self._queue = queue
        self._lease_s = lease.total_seconds()
        self._batch = receive_batch

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        queue = await self._queues.of(self._queue)
        count = min(max_count, self._batch)
        return await queue.receive(max_count=count, wait_s=wait_s, lease_s=self._lease_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await (await self._queues.of(self._queue)).settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return await (await self._queues.of(self._queue)).extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        """Nothing to let go of: the queue is the gateway's."""


# The producer for one queue in objects.


class S3Producer:
    """Sends to one queue; sends that come together are written together."""

    def __init__(self, queues: QueueCache, queue: str) -> None:
        self._queues = queues
        self._queue = queue

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """Nothing is sent when one of them is too large (`MessageTooLarge`)."""
        for message in messages:
            if len(message.body) > MAX_BODY_BYTES:
                raise MessageTooLarge(self._queue, len(message.body), MAX_BODY_BYTES)
        return await (await self._queues.of(self._queue)).send(messages, delay_s=delay_s)

    async def aclose(self) -> None:
        """Nothing to let go of: the queue is the gateway's."""


# Sessions of queues in objects: those of a gateway that are open, and where there are none.


class OpenSession(SessionPort, Protocol):
    """A session that says when it is closed."""

    on_closed: Callable[[Any], None] | None


@runtime_checkable
class SessionQueue(Protocol):
    """A queue whose layout has sessions."""

    async def accept_session(
        self, session: str | None, *, wait_s: float, lease_s: float
    ) -> OpenSession | None:
        """As `SessionGateway.accept_session`."""


class S3Sessions:
    """The sessions that a gateway has open; those that are left are closed with it."""

    def __init__(self, queues: QueueCache, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._open: set[OpenSession] = set()

    async def accept(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """See `SessionGateway.accept_session`. Messages without a group are in no session."""
        queue = await self._queues.of(subscription.queue)
        if not isinstance(queue, SessionQueue):
            raise _no_sessions(subscription.queue)
        lease_s = subscription.lease.total_seconds()
        accepted = await queue.accept_session(session, wait_s=wait_s, lease_s=lease_s)
        if accepted is not None:
            self._open.add(accepted)
            accepted.on_closed = self._open.discard
        return accepted

    async def aclose(self, patience_s: float) -> None:
        """Release them all; a store that does not answer is not waited for longer than this."""
        with suppress(TimeoutError):
            async with self._clock.timeout(patience_s):
                await asyncio.gather(*(_release(session) for session in list(self._open)))


async def _release(session: OpenSession) -> None:
    # What was not released runs out by itself.
    with suppress(GatewayError):
        await session.aclose()


def _no_sessions(queue: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        "s3",
        f"sessions on {queue!r}, a queue in the layout of leases",
        'only the layout `log` knows groups; make the queue with the option layout="log"',
    )


# The SDKs: conditional writes are younger than much else of them.

PACKAGES: Final = Packages(
    extra="s3",
    versions=sdk.PACKAGES.versions,
    need="conditional writes need",
)
"""They know `IfMatch` of PutObject, which came in November 2024 (botocore 1.35.69)."""


def check_sdk(kind: TransportKind) -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old.

    Reads files: call it in a thread.
    """
    PACKAGES.check_installed(sdk.NEEDED[kind])
