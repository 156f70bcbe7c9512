"""The operations in front of a real engine that keeps nothing on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.operations import Operations
from gateways.sqs_server.protocol import Call
from pump.testing.virtual_clock import VirtualClock

ACCOUNT = "111122223333"
REGION = "eu-west-1"
BASE_URL = "http://localhost:9324"


@attrs.define(eq=False)
class Service:
    """What a client does, without the wire in between."""

    operations: Operations
    clock: VirtualClock
    account: str = ACCOUNT
    region: str = REGION
    is_json: bool = True

    async def call(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        return await self.operations.call(
            Call(
                operation=operation,
                parameters=parameters,
                account=self.account,
                region=self.region,
                base_url=BASE_URL,
                sender="AKIDEXAMPLE",
                is_json=self.is_json,
            )
        )

    async def refusal(self, operation: str, **parameters: Any) -> SqsError:
        """The error of a call that must be refused."""
        with pytest.raises(SqsError) as refused:
            await self.call(operation, **parameters)
        return refused.value

    async def queue(self, name: str = "orders", **attributes: str) -> str:
        """A queue's URL; a FIFO queue when the name says so."""
        if name.endswith(".fifo"):
            attributes = {"FifoQueue": "true", **attributes}
        made = await self.call("CreateQueue", QueueName=name, Attributes=attributes)
        url: str = made["QueueUrl"]
        return url

    async def attributes(self, url: str, *names: str) -> Mapping[str, str]:
        shown = await self.call(
            "GetQueueAttributes", QueueUrl=url, AttributeNames=list(names) or ["All"]
        )
        attributes: Mapping[str, str] = shown.get("Attributes", {})
        return attributes

    async def arn(self, url: str) -> str:
        return (await self.attributes(url, "QueueArn"))["QueueArn"]

    async def send(self, url: str, body: str = "body", **parameters: Any) -> Mapping[str, Any]:
        return await self.call("SendMessage", QueueUrl=url, MessageBody=body, **parameters)

    async def receive(self, url: str, **parameters: Any) -> list[Mapping[str, Any]]:
        received = await self.call("ReceiveMessage", QueueUrl=url, **parameters)
        messages: list[Mapping[str, Any]] = received.get("Messages", [])
        return messages
