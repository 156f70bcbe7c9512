"""The SQS gateway keeps the contract on a real server, through both SDKs (R34)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from pump.testing.contract import GatewayContract, PumpContract, Rig, WaitingClock
from tests.brokers.aws_account import AwsAccount

pytestmark = pytest.mark.broker


def sqs_settings(aws: AwsAccount, transport: TransportKind, **fields: object) -> SqsSettings:
    """Settings for the test's own account."""
    return SqsSettings(
        aws=AwsSettings(
            region=aws.region,
            endpoint_url=aws.endpoint_url,
            credentials=Credentials(
                access_key_id=aws.access_key_id, secret_access_key=aws.secret_access_key
            ),
            transport=transport,
            # The suite has hundreds of consumers poll at once.
            max_connections=400,
        ),
        **fields,  # type: ignore[arg-type]
    )


async def open_rig(aws: AwsAccount, transport: TransportKind, **facts: Any) -> Rig:
    """A rig whose time is real: SQS counts in seconds, and LocalStack looks once a second."""
    clock = WaitingClock()

    async def open_gateway() -> SqsGateway:
        gateway = SqsGateway(sqs_settings(aws, transport), clock)
        await gateway.open()
        return gateway

    return Rig(
        gateway=await open_gateway(),
        clock=clock,
        tick_s=1.0,
        poll_s=1.0,
        slack_s=2.0,
        wait_s=2.0,
        has_exact_stats=False,
        redrives_on_receive=True,
        open_again=open_gateway,
        **facts,
    )


class OnStandardQueues(GatewayContract):
    """Standard queues; those that need order are FIFO."""

    transport: TransportKind

    @pytest.fixture
    async def rig(self, aws: AwsAccount) -> AsyncIterator[Rig]:
        rig = await open_rig(aws, self.transport, ordered_suffix=".fifo")
        yield rig
        await rig.aclose()


class OnFifoQueues(PumpContract):
    """The pump's laws and rejection, with every queue FIFO, the dead-letter queues too."""

    transport: TransportKind

    @pytest.fixture
    async def rig(self, aws: AwsAccount) -> AsyncIterator[Rig]:
        rig = await open_rig(aws, self.transport, suffix=".fifo", has_groups_of_one=True)
        yield rig
        await rig.aclose()


class TestSqsWithBoto3(OnStandardQueues):
    transport = TransportKind.BOTO3


class TestSqsWithAioboto3(OnStandardQueues):
    transport = TransportKind.AIOBOTO3


class TestSqsFifoWithBoto3(OnFifoQueues):
    transport = TransportKind.BOTO3


class TestSqsFifoWithAioboto3(OnFifoQueues):
    transport = TransportKind.AIOBOTO3
