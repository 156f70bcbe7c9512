"""The AWS that a test of the caretaker runs on: one on paper, and LocalStack by both SDKs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateways._aws.sdk import transport_for
from gateways._aws.sdk_transport import Polling, Reply, Request, Transport
from gateways._aws.settings import AwsSettings, Credentials, TransportKind
from gateways.sqs.calls import QueueUrls
from gateways.sqs.gateway import SqsAdmin
from pump.clock import SYSTEM_CLOCK, Clock
from pump.subscription import MakeChannels, QueueSpec

from .paper_aws import PaperAws

CLOUDS = ["paper", *(pytest.param(kind, marks=pytest.mark.broker) for kind in TransportKind)]


class Cloud:
    """A transport that remembers what was asked of it, and a caretaker who uses it."""

    def __init__(self, transport: Transport, *, owner: str | None = None) -> None:
        self.transport = transport
        self.urls = QueueUrls(self, owner=owner)
        self.operations: list[str] = []

    def admin(self, *, clock: Clock = SYSTEM_CLOCK, prefix: str = "") -> SqsAdmin:
        return SqsAdmin(self, self.urls, clock=clock, prefix=prefix)

    async def ensure(self, name: str, make: MakeChannels, **fields: Any) -> None:
        await self.admin().ensure(QueueSpec(name=name, **fields), make)

    async def create(self, name: str, **options: Any) -> None:
        await self.ensure(name, MakeChannels.CREATE, options=options)

    async def validate(self, name: str, **options: Any) -> None:
        await self.ensure(name, MakeChannels.VALIDATE, options=options)

    async def sqs(self, operation: str, queue: str, **request: Any) -> Reply:
        """Ask SQS about a queue, without the caretaker."""
        address = await self.transport.call(
            "sqs", "get_queue_url", {"QueueName": queue}, target=queue
        )
        url = address["QueueUrl"]
        return await self.transport.call(
            "sqs", operation, {"QueueUrl": url, **request}, target=queue
        )

    async def sns(self, operation: str, **request: Any) -> Reply:
        """Ask SNS, without the caretaker."""
        return await self.transport.call("sns", operation, request)

    async def attributes(self, queue: str) -> dict[str, str]:
        reply = await self.sqs("get_queue_attributes", queue, AttributeNames=["All"])
        return dict(reply["Attributes"])

    async def arn(self, queue: str) -> str:
        return (await self.attributes(queue))["QueueArn"]

    async def names(self) -> list[str]:
        return [stats.name for stats in await self.admin().queues()]

    async def open(self) -> None:
        await self.transport.open()

    async def aclose(self) -> None:
        await self.transport.aclose()

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        self.operations.append(operation)
        return await self.transport.call(service, operation, request, target=target)


@asynccontextmanager
async def open_cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    """The cloud of a fixture that is parametrised with `CLOUDS`."""
    cloud = Cloud(PaperAws() if request.param == "paper" else _localstack(request))
    await cloud.open()
    try:
        yield cloud
    finally:
        await cloud.aclose()


def _localstack(request: pytest.FixtureRequest) -> Transport:
    account = request.getfixturevalue("aws")
    return transport_for(
        AwsSettings(
            endpoint_url=account.endpoint_url,
            region=account.region,
            transport=request.param,
            credentials=Credentials(
                access_key_id=account.access_key_id, secret_access_key=account.secret_access_key
            ),
        )
    )
