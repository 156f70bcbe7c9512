"""Houses: a bucket in memory, and gateways on it as processes have them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from gateways.s3 import Layout, S3Gateway, S3Settings, Storage
from gateways.s3.layout import QueueKeys
from gateways.s3.store.objects import ObjectStore, Reply, Request, ServerTime
from pump.message import Delivery
from pump.subscription import MakeChannels, QueueSpec
from pump.testing import VirtualClock
from pump.testing.builders import a_subscription

from .model_store import ModelS3, ModelStore, Stored

ROOT = "team/"


class SilentStore:
    """A store that stops answering when told so."""

    def __init__(self, store: ObjectStore, is_silent: asyncio.Event) -> None:
        self._store = store
        self._is_silent = is_silent

    async def perform(self, request: Request) -> Reply:
        if self._is_silent.is_set():
            await asyncio.Event().wait()
        return await self._store.perform(request)


class House:
    """One bucket, and gateways on it as processes have them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.s3 = ModelS3(lambda: 1_750_000_000.0 + self.clock.now_s())
        self.gateways: list[S3Gateway] = []
        self.is_silent = asyncio.Event()
        """Whether the store no longer answers."""

    async def gateway(self, layout: Layout = Layout.LEASES) -> S3Gateway:
        """The gateway of another process."""
        time = ServerTime(self.clock.now_s)
        store = SilentStore(ModelStore(self.s3, time, self.clock.now_s), self.is_silent)
        settings = S3Settings(bucket="bucket", prefix="team", layout=layout)
        gateway = S3Gateway(settings, self.clock, storage=Storage(store=store, time=time))
        await gateway.open()
        self.gateways.append(gateway)
        return gateway

    def keys(self, kind: str, queue: str = "orders") -> list[str]:
        """What a queue has below a prefix of its own."""
        prefix = f"{QueueKeys(ROOT, queue).root}{kind}"
        return sorted(key for key in self.s3.objects if key.startswith(prefix))

    def remove(self, key: str) -> Stored:
        """Remove an object by hand; what it was."""
        return self.s3.objects.pop(key)


async def ensure(gateway: S3Gateway, name: str, **fields: object) -> None:
    """Make a queue."""
    spec = QueueSpec(name=name, lease=timedelta(seconds=30), **fields)  # type: ignore[arg-type]
    await gateway.admin().ensure(spec, MakeChannels.CREATE)


async def take(gateway: S3Gateway, max_count: int = 10, queue: str = "orders") -> list[Delivery]:
    """What one receive returns."""
    subscription = a_subscription(queue=queue, lease=timedelta(seconds=30))
    return [*await gateway.consumer(subscription).receive(max_count=max_count, wait_s=0.0)]
