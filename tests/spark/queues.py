"""Queues on `pump local` for tests of the format "pump"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import attrs

from gateways.sqs import SqsGateway, TransportKind
from pump.message import Delivery, Message, new_id
from pump.outcome import ACK, Settlement
from pump.spark.data import register
from pump.subscription import MakeChannels, QueueSpec, Subscription
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings

_T = TypeVar("_T")
_ACCOUNT = "100000000078"
"""One for all tests: Spark starts other Python workers for other environments."""


@attrs.frozen
class Queues:
    """An account that Spark's Python workers have the credentials of."""

    account: AwsAccount

    @property
    def url(self) -> str:
        return f"sqs://{self.account.region}?endpoint={self.account.endpoint_url}"

    def make(self, suffix: str = "") -> str:
        """A queue of the test's own."""
        queue = f"q{new_id()}{suffix}"

        async def ensure(gateway: SqsGateway) -> None:
            await gateway.admin().ensure(QueueSpec(name=queue), MakeChannels.CREATE)

        self._run(ensure)
        return queue

    def send(self, queue: str, messages: Sequence[Message]) -> None:
        async def send(gateway: SqsGateway) -> None:
            await gateway.producer(queue).send(messages)

        self._run(send)

    def take_all(self, queue: str) -> list[Message]:
        """Receive and ack until nothing comes."""

        async def take(gateway: SqsGateway) -> list[Message]:
            port = gateway.consumer(Subscription(queue=queue, request=Message))
            taken: list[Delivery] = []
            while deliveries := await port.receive(max_count=10, wait_s=0.0):
                await port.settle([Settlement(each, ACK) for each in deliveries])
                taken += deliveries
            await port.aclose()
            return [each.message for each in taken]

        return self._run(take)

    def _run(self, work: Callable[[SqsGateway], Coroutine[Any, Any, _T]]) -> _T:
        async def main() -> _T:
            gateway = SqsGateway(sqs_settings(self.account, TransportKind.AIOBOTO3))
            await gateway.open()
            try:
                return await work(gateway)
            finally:
                await gateway.aclose()

        return asyncio.run(main())


def queues_for(spark: Any, account: AwsAccount) -> Queues:
    """Register the format with an account's credentials in the environment of the workers."""
    account = attrs.evolve(account, access_key_id=_ACCOUNT)
    credentials = {
        "AWS_ACCESS_KEY_ID": account.access_key_id,
        "AWS_SECRET_ACCESS_KEY": account.secret_access_key,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(credentials)
    try:
        register(spark)
    finally:
        environment.clear()
        environment.update(before)
    return Queues(account)
