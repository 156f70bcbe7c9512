"""The S3 gateway: queues in a bucket, without any broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import ConfigurationError
from pump.findings import Finding
from pump.handler_times import HandlerTimes
from pump.ids import new_id
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, SessionPort
from pump.subscription import Subscription
from pump.tasks import in_thread

from .._aws.errors import SettingRefused
from .._aws.transport import Transport, transport_for
from .admin import S3Admin
from .consumer import S3Consumer
from .doctor import examine
from .limits import capabilities_of
from .producer import S3Producer
from .queue_options import Wanted
from .queues import Bench, Queues
from .sdk import check_sdk
from .sessions import Sessions
from .settings import S3Settings
from .store.driving import ObjectStore, drive
from .store.probe import probe, refused
from .store.s3_store import Bucket, S3Store
from .store.server_time import ServerTime


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
        self._bench = Bench(settings=settings, store=storage.store, time=storage.time, clock=clock)
        self._queues = Queues(self._bench)
        self._sessions = Sessions(self._queues, clock)
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
        counts: Mapping[str, int] = getattr(self._bench.store, "counts", Counter())
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
        return await examine(self._bench, self._queues, self._transport, subscriptions)

    async def _probe(self) -> None:
        settings = self._settings
        root = f"{settings.root}probe/{new_id()}/"
        try:
            trouble = await drive(probe(root, new_id), self._bench.store)
        except SettingRefused as fault:
            if fault.value in ("NoSuchBucket", "404"):
                raise _missing(settings.bucket) from fault
            if fault.value == "NotImplemented":
                raise refused(settings.bucket, fault.remedy) from fault
            raise
        if not trouble and not self._bench.time.is_known:
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
