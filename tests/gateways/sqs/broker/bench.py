"""A bench: apps on the SQS gateway, through one of the SDKs, and a plain look at the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs
import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from pump import App, Command, Subscription
from pump.clock import SYSTEM_CLOCK
from pump.consumer import Consumer
from pump.dispatcher import Dispatcher
from pump.events import Event, OutcomeEvent
from pump.ports import Gateway
from pump.stores.spill import MemorySpill
from tests.brokers.aws_account import AwsAccount

from .plain_sqs import PATIENCE_S, PlainSqs

LEASE = timedelta(seconds=30)
ONE_TRANSPORT = pytest.mark.parametrize(
    "transport", [TransportKind.LEAN], ids=["lean"], indirect=True
)
"""For what no transport has a part in. All of them keep the contract on `pump local`; `lean` is the
one whose requests and whose reading of answers are our own.
"""
SHORT_WAIT = timedelta(seconds=1)
"""A drain waits for its last poll, so polls are short."""


class Job(Command):
    """The request of these tests; `task` tells its handler what to do."""

    task: str = "work"


async def do_nothing(job: Job) -> None:
    """A handler to whom everything is right."""


class Diary:
    """What observers are told, and a way to wait for it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    @property
    def outcomes(self) -> list[OutcomeEvent]:
        return [event for event in self.events if isinstance(event, OutcomeEvent)]

    @property
    def statuses(self) -> list[str]:
        return [outcome.status.value for outcome in self.outcomes]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return when something that events can change is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def until_settled(self, count: int) -> None:
        await self.until(lambda: len(self.outcomes) >= count)


@attrs.define(eq=False)
class Shop:
    """An app, and what is seen of it."""

    app: App
    subscription: Subscription
    spill: MemorySpill
    diary: Diary
    plain: PlainSqs

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Dispatcher]:
        """Pump while the block runs; drain at its end."""
        async with self.app, self.app.pumping() as dispatcher:
            yield dispatcher

    @asynccontextmanager
    async def by_hand(self) -> AsyncIterator[Consumer]:
        """Consume without a pump."""
        async with self.app, self.app.consumer(self.subscription) as consumer:
            yield consumer

    async def post(self, *tasks: str, **options: Any) -> Sequence[str]:
        return await self.app.post_all([Job(task) for task in tasks], **options)


@attrs.define(eq=False)
class Bench:
    """One account and one SDK."""

    aws: AwsAccount
    transport: TransportKind
    plain: PlainSqs
    stack: AsyncExitStack

    def settings(self, aws: AwsAccount | None = None, **fields: Any) -> SqsSettings:
        """Settings for the account, `aws` being the door to it."""
        door = aws or self.aws
        names = {field.name for field in attrs.fields(AwsSettings)}
        sdk = {name: fields.pop(name) for name in list(fields) if name in names}
        credentials = Credentials(
            access_key_id=door.access_key_id, secret_access_key=door.secret_access_key
        )
        return SqsSettings(
            aws=AwsSettings(
                region=door.region,
                endpoint_url=door.endpoint_url,
                credentials=credentials,
                transport=self.transport,
                **sdk,
            ),
            **fields,
        )

    async def gateway(self, aws: AwsAccount | None = None, **fields: Any) -> SqsGateway:
        """A gateway, opened, and closed at the end of the test."""
        gateway = SqsGateway(self.settings(aws, **fields))
        await gateway.open()
        self.stack.push_async_callback(gateway.aclose)
        return gateway

    def shop(
        self,
        handle: Callable[[Job], Awaitable[None]] = do_nothing,
        *,
        queue: str = "jobs",
        gateway: Gateway | None = None,
        **fields: Any,
    ) -> Shop:
        """An app with one subscription."""
        fields.setdefault("lease", LEASE)
        fields.setdefault("wait", SHORT_WAIT)
        subscription = Subscription(queue=queue, request=Job, **fields)
        spill, diary = MemorySpill(), Diary()
        app = App(gateway or SqsGateway(self.settings()), spill=spill, observers=[diary])
        app.register(Job, handle)
        app.subscribe(subscription)
        return Shop(app, subscription, spill, diary, self.plain)


def raising(error: Exception) -> Callable[[Job], Awaitable[None]]:
    """A handler that always raises this."""

    async def handle(job: Job) -> None:
        raise error

    return handle


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask until something is so, where nothing tells us of it."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():
            await SYSTEM_CLOCK.sleep(0.05)
